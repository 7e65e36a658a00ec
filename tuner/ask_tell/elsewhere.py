"""Checkpoints that stay where the trials run: instead of their files, the run stores the place where they are.

So pausing, going on after a loss, and deleting work in the same way as for checkpoints in the run folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import ReportError, shown
from tuner.temporary import OwnedFolder

FILE = "elsewhere.json"
LONGEST = 1_000  # characters


def checked_place(place: object) -> str:
    """The place of a checkpoint in the worker's words: a path, an address, a key. Raises ReportError."""
    if not isinstance(place, str) or not place.isprintable() or not 0 < len(place) <= LONGEST:
        raise ReportError(
            f"a checkpoint elsewhere is named by its path or address, a text of 1 to {LONGEST:,} printable characters, "
            f"got {shown(place)}; name its path or address"
        )
    return place


@contextmanager
def as_folder(place: str) -> Iterator[Path]:
    """For the length of the block, a checkpoint's folder that only says where its files are."""
    with OwnedFolder("elsewhere") as temporary:
        folder = temporary / "checkpoint"
        folder.mkdir()
        (folder / FILE).write_text(json.dumps({"checkpoint": place}), encoding="utf-8")
        yield folder


def place_of(checkpoint: Path | None) -> str | None:
    """The place of a checkpoint's files; None if there is no checkpoint, or its own folder has the files."""
    if checkpoint is None:
        return None
    try:
        place = json.loads((checkpoint / FILE).read_text(encoding="utf-8"))["checkpoint"]
        return checked_place(place)
    except (OSError, ValueError, KeyError, TypeError, ReportError):
        return None
