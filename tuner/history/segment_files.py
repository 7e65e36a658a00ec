"""The segments of a run's events on a disk: written line by line, synced, and restored if others have damaged them."""

from __future__ import annotations

import os
import threading
import zlib
from contextlib import suppress
from typing import IO

from tuner.errors import RunFolderError
from tuner.history.event_lines import EVENTS
from tuner.history.event_reading import segments
from tuner.storage.durable import sync, sync_open
from tuner.storage.folder import LocalFolder


class SegmentFiles:
    """Writes one segment after the other; may be used by several threads.

    What all of them hold is kept in memory, packed once a segment is full: if one is cut off, replaced or deleted while
    the search runs, it is written again.
    """

    def __init__(self, folder: LocalFolder) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._name, self._content = "", bytearray()
        self._unsynced = self._torn = False  # torn: a line could not be written, and a part of it may be there
        self._full: dict[str, tuple[int, bytes]] | None = None  # size, and packed; None: earlier ones aren't read yet
        self._restored: list[str] = []
        self._lock = threading.RLock()
        for _, name in segments(folder):  # their driver may have been killed, and the power goes now
            sync(folder.path / EVENTS / name)

    def begin(self, name: str) -> None:
        """Go on in a new segment."""
        with self._lock:
            if self._file is not None:
                full = self._restore(self._file)
                full[self._name] = self._size(self._name), zlib.compress(self._content, 1)
            self.close()
            self._file = self._folder.append_to(name)
            self._name, self._content, self._torn = name, bytearray(), False

    def append(self, line: bytes) -> None:
        """Write a line; raises OSError, or RunFolderError if the run's folder is gone."""
        with self._lock:
            if self._file is None:
                return
            if os.fstat(self._file.fileno()).st_nlink == 0:
                self._restore(self._file)
            before, self._torn = self._torn, True
            self._file.write(line)
            self._file.flush()
            self._content += line
            self._torn, self._unsynced = before, True

    def flush(self) -> None:
        """Force what was written to the disk; raises OSError."""
        with self._lock:
            if self._file is not None and self._unsynced:
                sync_open(self._file)
                self._unsynced = False

    def restored(self) -> list[str]:
        """The segments that had to be written again since the last call, which looks at all of them.

        Raises OSError, or RunFolderError if the run's folder is gone.
        """
        with self._lock:
            if self._file is not None:
                self._restore(self._file)
            names, self._restored = self._restored, []
            return names

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            if self._file is not None:
                try:
                    self.flush()
                finally:
                    self._file.close()
                    self._file = None

    def _restore(self, file: IO[bytes]) -> dict[str, tuple[int, bytes]]:
        """Returns the full segments."""
        if not self._folder.path.is_dir():
            raise RunFolderError(
                f"the run's folder must stay while the search runs, got {self._folder.uri!r} without {self._name}; "
                "start the search again"
            )
        if self._full is None:
            names = [f"{EVENTS}/{name}" for _, name in segments(self._folder)]
            found = {name: self._folder.read(name) for name in names if name != self._name}
            self._full = {name: (len(content), zlib.compress(content, 1)) for name, content in found.items()}
        for name, (size, packed) in self._full.items():
            if self._size(name) != size:
                self._write(name, zlib.decompress(packed))
        more = self._size(self._name) - len(self._content)
        if more < 0 or (more > 0 and not self._torn) or os.fstat(file.fileno()).st_nlink == 0:
            self._write(self._name, bytes(self._content))
            file.close()
            self._file, self._torn = self._folder.append_to(self._name), False
        return self._full

    def _size(self, name: str) -> int:
        """Bytes of a segment; -1 if it isn't there."""
        with suppress(OSError):
            return (self._folder.path / name).stat().st_size
        return -1

    def _write(self, name: str, content: bytes) -> None:
        self._folder.write(name, content)
        self._restored.append(name)
