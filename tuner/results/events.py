"""What happened in a run, one JSON object a line: the only source of its tables.

Every event has `event` (its kind) and `time` (seconds since 1970, UTC). Kinds and their further fields:

    study_started       trials (its budget, or null), learned (configurations of earlier studies that come first)
    study_resumed       trials
    trial_started       trial, number, config, seed, from_epoch (0: from its beginning)
    epoch_reported      trial, epoch, metrics, decision ("continue" | "stop" | "pause")
    checkpoint_saved    trial, epoch, path (relative to the run folder)
    checkpoint_deleted  trial, epoch
    trial_paused        trial, epoch                        trial_resumed       trial, epoch
    trial_lost          trial, message (a worker or node died; the trial goes on elsewhere)
    trial_ended         trial, status, cause, message, traceback
    notice              message, code
    study_interrupted                                       study_ended         reason

Events lie in `events/000001.jsonl`, `events/000002.jsonl`, …. The driver alone writes them: on a disk each line is
appended and flushed, so that a killed driver loses at most the line it was writing; an object store gets whole
segments.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import IO, Any, Protocol

from tuner.results.folder import Folder, LocalFolder

Event = dict[str, Any]
EVENTS = "events"
SEGMENT_EVENTS = 20_000
OBJECT_STORE_SECONDS = 20.0


class Listener(Protocol):
    """Whoever follows a run while it happens."""

    def on_event(self, event: Event) -> None:
        """Take one event; called in the driver's loop, so it should return at once."""


class EventLog:
    """Appends events to a run folder, in a segment of its own so that an earlier one's torn end is never continued."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._segment = max((_segment_number(name) for name in folder.files(EVENTS)), default=0)
        self._file: IO[bytes] | None = None
        self._lines: list[bytes] = []
        self._count = 0
        self._written = time.monotonic()
        self._begin_segment()

    def append(self, kind: str, **fields: Any) -> Event:
        """Write one event now; returns it as a reader will see it."""
        line = json.dumps({"event": kind, "time": time.time(), **fields}, default=plain, allow_nan=True)
        event: Event = json.loads(line, parse_constant=_no_number)
        line = json.dumps(event, separators=(",", ":"))
        if self._count >= SEGMENT_EVENTS:
            self._begin_segment()
        self._count += 1
        self._write(line.encode() + b"\n")
        return event

    def close(self) -> None:
        """Write what is still held back."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._upload()

    def _begin_segment(self) -> None:
        self.close()
        self._segment += 1
        self._count, self._lines = 0, []
        if isinstance(self._folder, LocalFolder):
            self._file = self._folder.append_to(self._name)

    @property
    def _name(self) -> str:
        return f"{EVENTS}/{self._segment:06d}.jsonl"

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            self._file.write(line)
            self._file.flush()
            return
        self._lines.append(line)
        if time.monotonic() - self._written > OBJECT_STORE_SECONDS:
            self._upload()

    def _upload(self) -> None:
        """An object can't be appended to: the segment so far is written as a whole."""
        if self._lines:
            self._folder.write(self._name, b"".join(self._lines))
            self._written = time.monotonic()


class EventFollower:
    """Reads a run's events while its driver writes them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._segment, self._taken = "", 0  # the newest segment seen, and the bytes read of it

    def new(self) -> list[Event]:
        """The events that have come since the last call; a line that isn't whole yet comes later."""
        found: list[Event] = []
        for name in _segments(self._folder):
            if name < self._segment:
                continue
            start = self._taken if name == self._segment else 0
            content = self._folder.read_from(f"{EVENTS}/{name}", start)
            whole = content[: content.rfind(b"\n") + 1]
            found += _parsed(whole)
            self._segment, self._taken = name, start + len(whole)
        return found


def read_events(folder: Folder) -> Iterator[Event]:
    """All events of a run in the order they happened; a torn last line of a segment is passed over."""
    for name in _segments(folder):
        yield from _parsed(folder.read(f"{EVENTS}/{name}"))


def _segments(folder: Folder) -> list[str]:
    return [name for name in folder.files(EVENTS) if name.endswith(".jsonl")]


def _parsed(lines: bytes) -> Iterator[Event]:
    for line in lines.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            yield event


def _segment_number(name: str) -> int:
    stem = name.removesuffix(".jsonl")
    return int(stem) if stem.isdigit() else 0


def plain(value: object) -> Any:
    """Default of `json.dumps`: numpy and torch scalars as Python numbers, sets and tuples as lists, else the text."""
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return item()
        except (TypeError, ValueError, RuntimeError):
            return str(value)
    return list(value) if isinstance(value, tuple | set | frozenset) else str(value)


def _no_number(constant: str) -> None:
    """NaN and infinities are no JSON: they read back as null."""


def finite(value: object) -> bool:
    """Whether a reported value is a number that can be compared."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
