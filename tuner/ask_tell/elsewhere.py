"""Checkpoints that stay where the trials run: in place of their files, the run keeps the place where they are.

So pausing, going on after a loss, and deleting work as for checkpoints in the run folder.
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
    """Where a checkpoint is, as its worker names the place: a path, an address, a key. Raises ReportError."""
    if not isinstance(place, str) or not place.isprintable() or not 0 < len(place) <= LONGEST:
        raise ReportError(
            f"a checkpoint elsewhere is named by its path or address, a text of 1 to {LONGEST:,} printable characters, "
            f"got {shown(place)}; name its path or address"
        )
    return place


@contextmanager
def as_folder(place: str) -> Iterator[Path]:
    """A checkpoint's folder for the length of the block, which says where its files lie."""
    with OwnedFolder("elsewhere") as temporary:
        folder = temporary / "checkpoint"
        folder.mkdir()
        (folder / FILE).write_text(json.dumps({"checkpoint": place}), encoding="utf-8")
        yield folder


def place_of(checkpoint: Path | None) -> str | None:
    """Where a checkpoint's files lie; None if there is none, or its own folder has them."""
    if checkpoint is None:
        return None
    try:
        place = json.loads((checkpoint / FILE).read_text(encoding="utf-8"))["checkpoint"]
        return checked_place(place)
    except (OSError, ValueError, KeyError, TypeError, ReportError):
        return None
