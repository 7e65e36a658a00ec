"""A power cut: of each file is left what was synced last, and of each folder the entries that were in it then."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_fsync = os.fsync


class SyncedFiles:
    """Remembers what this process syncs below a folder. Deletions count as synced, since a disk may do them at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[int, bytes] = {}  # by inode
        self._entries: dict[int, dict[str, int]] = {}  # by inode of the folder: names, and their inodes

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block each sync is noted."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self._sync)
            yield

    def _sync(self, file: int) -> None:
        path, inode = Path(f"/proc/self/fd/{file}").readlink(), os.fstat(file).st_ino
        if path.is_dir():
            self._entries[inode] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        elif path.is_file():
            self._contents[inode] = path.read_bytes()

    def has(self, file: Path) -> bool:
        """Whether all that was written to the file was synced."""
        return file.read_bytes() == self._contents.get(file.stat().st_ino, b"")

    def cut(self) -> None:
        """The power goes, and comes back."""
        self._restore(self._folder)

    def _restore(self, folder: Path) -> None:
        synced = self._entries.get(folder.stat().st_ino, {})
        for entry in list(folder.iterdir()):
            inode = entry.stat().st_ino
            if synced.get(entry.name) != inode:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            elif entry.is_dir():
                self._restore(entry)
            elif entry.read_bytes() != self._contents.get(inode, b""):
                entry.write_bytes(self._contents.get(inode, b""))
