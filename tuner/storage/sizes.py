"""The size of files at a path, and the free space of its disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple


class Disk(NamedTuple):
    """Bytes of a file system: what this user may still write, and all of it."""

    free: int
    total: int


def path_bytes(path: Path, *, without: Collection[str] = ()) -> int:
    """Bytes of a file, or of all files below a folder; `without` are names directly in it that don't count.

    Symbolic links count with their own few bytes, without their targets. Files deleted meanwhile don't count.
    """
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        entries = [entry for entry in os.scandir(path) if entry.name not in without]
    except OSError:
        return 0
    return sum(_entry_bytes(entry) for entry in entries)


def _entry_bytes(entry: os.DirEntry[str]) -> int:
    try:
        if entry.is_dir(follow_symlinks=False):
            return path_bytes(Path(entry.path))
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def disk_of(path: Path) -> Disk | None:
    """The file system of a path, even if the path doesn't exist yet; None if the system doesn't say."""
    there = next((each for each in (path, *path.parents) if each.exists()), None)
    if there is None:
        return None
    try:
        usage = shutil.disk_usage(there)
    except OSError:
        return None
    return Disk(usage.free, usage.total)
