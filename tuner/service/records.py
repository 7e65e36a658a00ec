"""Records of long runs, stored for the next server: reading 200,000 events takes seconds, a record a fraction of one.

A record is found by the digest of the log from which it was computed, which is read each time; so one of another log,
metric or version is never used. The files hold JSON: a bad one can't be executed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tuner import __version__
from tuner.history.records import RunRecord
from tuner.history.stored_record import FORMAT, NoRecordError, lines_of, record_of
from tuner.service.kept import Kept

FEWEST_EPOCHS = 4_000  # of a run whose record is stored: fewer are read quickly
MOST_RECORDS = 32  # the last used ones


class Records:
    """Records in a folder; several threads and processes may use it. If the disk is nearly full none is stored."""

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
