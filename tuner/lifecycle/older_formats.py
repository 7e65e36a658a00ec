"""Going on with runs that older versions of tuner wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.errors import TunerError
from tuner.history.checkpoints import CheckpointStore, copied
from tuner.history.events import Event
from tuner.machine.temporary import OwnedFolder
from tuner.storage.folder import Folder

_OLD_PLACE = re.compile(r"tune/[A-Za-z0-9_-]+/(checkpoint|saved)_[0-9]+")  # in format 1, when Ray wrote part of it


def bring_over_checkpoints(folder: Folder, events: Sequence[Event]) -> None:
    """Copy checkpoints of a run of format 1 to where checkpoints are now; those that can't be copied are skipped."""
    places: dict[tuple[str, int], str] = {}
    for event in events:
        key = (event.get("trial", ""), event.get("epoch", 0))
        if event["event"] == "checkpoint_saved" and isinstance(event.get("path"), str):
            places[key] = event["path"]
        elif event["event"] == "checkpoint_deleted":
            places.pop(key, None)
    store = CheckpointStore(folder)
    for (trial, epoch), path in places.items():
        if _OLD_PLACE.fullmatch(path) and not store.has(trial, epoch):
            _copy(folder, path, store, trial, epoch)


def _copy(folder: Folder, path: str, store: CheckpointStore, trial: str, epoch: int) -> None:
    with OwnedFolder("older") as temporary:
        try:
            source = folder.fetch(path, temporary / "checkpoint")
            store.write(trial, epoch, copied(source))
        except (OSError, TunerError, ValueError):
            return
