"""What long runs add up to, kept from one server to the next: reading 200,000 events takes seconds, this a part of one.

A cache and nothing else. A record is found by the digest of the very log that it was folded from, which is read each
time; so one of another log, another metric or another version is never taken, and any file may be deleted at any time.
The files lie in the service's own folder, not in the run's, and hold JSON: a bad one can't be executed. Who may write
there could change what a page shows; so one that others may write to, and one that is damaged, counts for none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tuner import __version__
from tuner.history.records import RunRecord
from tuner.history.stored_record import FORMAT, NoRecordError, lines_of, record_of

FEWEST_EPOCHS = 4_000  # of a run that is worth it: fewer are read in a moment
MOST_RECORDS = 32  # those used last
_SUM_BYTES = 9  # of the last line, a CRC-32
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Records:
    """Those in a folder; may be used from several threads and processes. Where the disk is nearly full none is kept."""

    def __init__(self, folder: Path, free_bytes: int = 0) -> None:
        self._folder, self._free_bytes = folder, free_bytes

    def find(self, digest: str, metric: str, mode: str) -> RunRecord | None:
        """The record of the log with this digest; None where none is kept that can be used."""
        path = self._path(digest, metric, mode)
        try:
            content = _read(path)
        except OSError:
            return None
        body, told = content[:-_SUM_BYTES], content[-_SUM_BYTES:]
        try:
            if told != _sum(zlib.crc32(body)):
                raise NoRecordError("its checksum doesn't fit")
            found = record_of(body.splitlines())
        except NoRecordError:
            path.unlink(missing_ok=True)
            return None
        with suppress(OSError):
            os.utime(path)
        return found

    def keep(self, record: RunRecord, digest: str, still: Callable[[], bool]) -> None:
        """Write the record of a log down, if it is a long one; it counts if it is `still` that log's afterwards."""
        if record.epochs() < FEWEST_EPOCHS:
            return
        path = self._path(digest, record.metric, record.mode)
        if path.exists():
            return
        # ValueError: a number that JSON lacks; RuntimeError: the record has changed meanwhile
        with suppress(OSError, ValueError, RuntimeError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if shutil.disk_usage(self._folder).free < self._free_bytes:
                return
            temporary = self._written(record)
            try:
                if still():
                    temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._forget_old()

    def _path(self, digest: str, metric: str, mode: str) -> Path:
        told = "\0".join((str(FORMAT), __version__, metric, mode, digest))
        return self._folder / hashlib.sha256(told.encode("utf-8", "backslashreplace")).hexdigest()

    def _written(self, record: RunRecord) -> Path:
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".")  # which only this user may read
        try:
            with os.fdopen(descriptor, "wb") as file:
                crc = 0
                for line in lines_of(record):
                    crc = zlib.crc32(line, crc)
                    file.write(line)
                file.write(_sum(crc))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return Path(name)

    def _forget_old(self) -> None:
        """All but those used last; what a killed server was writing goes in its turn."""
        found = [(path.lstat().st_mtime, path) for path in self._folder.iterdir()]
        for _, path in sorted(found, reverse=True)[MOST_RECORDS:]:
            path.unlink(missing_ok=True)


def _sum(crc: int) -> bytes:
    return b"%08x\n" % crc


def _read(path: Path) -> bytes:
    """A regular file of this user's that nobody else may write to, nor put another one in its place. Raises OSError."""
    for each in (path.parent, path):
        mode = each.lstat()
        if mode.st_uid != os.geteuid() or mode.st_mode & _OTHERS_MAY_WRITE:
            raise PermissionError(f"others may write to {each}")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PermissionError(f"no regular file: {path}")
        return file.read()
