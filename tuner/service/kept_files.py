"""Files that a server keeps for the next one, such as records of long runs: any may be deleted at any time.

They are in the service's own folder. Anybody who can write there could change what a page shows, so a file that users
other than the server's may write to is ignored, as is a damaged one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tuner.history.records import RunRecord
from tuner.history.stored_record import FORMAT, NoRecordError, lines_of, record_of
from tuner.machine.version import __version__
from tuner.storage.regular_files import regular_file

_SUM_BYTES = 9  # of the last line, a CRC-32
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
FEWEST_EPOCHS = 4_000  # of a run whose record is stored: fewer are read quickly
MOST_RECORDS = 32  # the last used ones


class Kept:
    """The files in a folder, by keys of any length; may be used from several threads and processes.

    At most a fixed number is kept, the last used ones, and none if the disk is nearly full.
    """

    def __init__(self, folder: Path, free_bytes: int, most: int) -> None:
        self._folder, self._free_bytes, self._most = folder, free_bytes, most

    def find(self, key: str) -> bytes | None:
        """What is stored under the key; None if there is nothing usable."""
        path = self._path(key)
        try:
            content = _read(path)
        except OSError:
            return None
        body, told = content[:-_SUM_BYTES], content[-_SUM_BYTES:]
        if told != _sum(zlib.crc32(body)):
            self.forget(key)
            return None
        with suppress(OSError):
            os.utime(path)
        return body

    def has(self, key: str) -> bool:
        """Whether there is something under the key."""
        return self._path(key).exists()

    def forget(self, key: str) -> None:
        """Delete what is kept under the key."""
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def keep(self, key: str, lines: Iterable[bytes], still: Callable[[], bool] = lambda: True) -> None:
        """Store the lines; they count if they are `still` right afterwards. Does nothing if that isn't possible."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if shutil.disk_usage(self._folder).free < self._free_bytes:
                return
            temporary = self._written(lines)
            try:
                if still():
                    temporary.replace(self._path(key))
            finally:
                temporary.unlink(missing_ok=True)
            self._forget_old()

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()

    def _written(self, lines: Iterable[bytes]) -> Path:
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".")  # only this user may read it
        try:
            with os.fdopen(descriptor, "wb") as file:
                crc = 0
                for line in lines:
                    crc = zlib.crc32(line, crc)
                    file.write(line)
                file.write(_sum(crc))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return Path(name)

    def _forget_old(self) -> None:
        """Delete all except the last used ones; unfinished files of a killed server are deleted like others."""
        found = [(path.lstat().st_mtime, path) for path in self._folder.iterdir()]
        for _, path in sorted(found, reverse=True)[self._most :]:
            path.unlink(missing_ok=True)


def _sum(crc: int) -> bytes:
    return b"%08x\n" % crc


def _read(path: Path) -> bytes:
    """A regular file of this user that nobody else may write to or replace. Raises OSError."""
    for each in (path.parent, path):
        mode = each.lstat()
        if mode.st_uid != os.geteuid() or mode.st_mode & _OTHERS_MAY_WRITE:
            raise PermissionError(f"others may write to {each}")
    with regular_file(path, os.O_NOFOLLOW) as file:
        return file.read()


class Records:
    """Records in a folder; several threads and processes may use it. If the disk is nearly full none is stored.

    Reading 200,000 events takes seconds, a record a fraction of one. A record is found by the digest of the log from
    which it was computed, which is read each time; so one of another log, metric or version is never used. The files
    hold JSON: a bad one can't be executed.
    """

    def __init__(self, folder: Path, free_bytes: int = 0) -> None:
        self._kept = Kept(folder, free_bytes, MOST_RECORDS)

    def find(self, digest: str, metric: str, mode: str) -> RunRecord | None:
        """The record of the log with this digest; None if none is kept that can be used."""
        key = _key(digest, metric, mode)
        content = self._kept.find(key)
        if content is None:
            return None
        try:
            return record_of(content.splitlines())
        except NoRecordError:
            self._kept.forget(key)
            return None

    def keep(self, record: RunRecord, digest: str, still: Callable[[], bool]) -> None:
        """Store the record of a log if the log is long; it is only valid if it is `still` that log's record
        afterwards.
        """
        key = _key(digest, record.metric, record.mode)
        if record.epochs() < FEWEST_EPOCHS or self._kept.has(key):
            return
        with suppress(ValueError, RuntimeError):  # a number that JSON lacks; the record has changed meanwhile
            self._kept.keep(key, lines_of(record), still)


def _key(digest: str, metric: str, mode: str) -> str:
    return "\0".join((str(FORMAT), __version__, metric, mode, digest))
