"""What happened in a run, one JSON object a line: the only source of its tables.

Every event has `event` (its kind) and `time` (seconds since 1970, UTC). Kinds and their further fields:

    study_started       trials (its budget, or null), max_epochs, study_file (its text), study_version (1;
                        another where edited), learned (configurations of earlier studies that come first), devices
                        (that trials share where they are packed; starts of trials then have device, predicted_bytes,
                        and alike, which is the same for trials that take as much memory: see `tuner.loop.packing`),
                        orders (true: the driver reads the inbox), limits (given in place of the study file's),
                        concurrency (where it was given)
    study_resumed       the same, by a further driver; anew (true: it goes on though an order had ended the search)
    trial_started       trial, number, config, seed, from_epoch (of its newest checkpoint, 0: from its beginning),
                        order (of a user who wanted it)
    trial_placed        trial, host, pid, devices ("cuda:3" for each GPU, or "2 CPUs"), gpus (their names), waited
                        (seconds, for another trial's end), together (trials that are trained as one there): where the
                        trial that was started or resumed runs
    trial_handed        trial, worker (that asked a search service for it)
    features_computed   trial, model, images, total, seconds, seconds_left: so many of the images have gone through the
                        frozen backbone of the model, for which the trial's first epoch is waiting
    configuration_refused   config, least_bytes (it needs more memory than any device has, and becomes no trial), order
    epoch_reported      trial, epoch, metrics, decision ("continue" | "stop" | "pause"), ending (where it is to stop:
                        the fields of the trial_ended that follows), ago (seconds since it ended, where epochs are so
                        quick that several are sent at once), read (names of its configuration that a function has
                        read so far, with its first report and where there are more) and absent (others that it asked
                        for)
    checkpoint_saved    trial, epoch                        checkpoint_deleted  trial, epoch
    trial_paused        trial, epoch                        trial_resumed       trial, epoch, from_epoch
    trial_lost          trial, cause ("lost" | "out_of_memory" | "hung" | "drained"), message, traceback of a trial
                        that hung (its worker or node died, or is drained; it goes on elsewhere)
    trial_retried       trial, cause, message, traceback (it has failed and is tried again), alone (where its device
                        is then its own), used (its worker had run other trials, so that this doesn't count)
    retry_requested     trials (failed ones that the user has run again), alone and ended_by (where they are repeats of
                        an ended search, as of a confirmation)
    trial_ended         trial, status, cause, message, traceback, by (what stopped it: "early_stopping", or a limit)
    order_obeyed        order (its id), verb, arguments, by, message, config (of `try`: the whole one), trials (of
                        `retry`), late (true: the search had ended before it was read, so that nothing is done); written
                        before it is carried out
    order_refused       order, verb, arguments, by, message
    notice              message, code
    study_interrupted   reason                              study_ended         reason

A report's events come in this order: epoch_reported, checkpoint_saved, trial_paused or trial_ended, and
checkpoint_deleted before the checkpoint itself is.

Events lie in `events/000001.jsonl`, `events/000002.jsonl`, …. The driver alone writes them: on a disk each line is
appended and flushed, so that a killed driver loses at most the line it was writing, and synced soon after, so that a
power cut loses at most two seconds; an object store gets whole segments, within OBJECT_STORE_SECONDS of an event. Every
line has a checksum (see `event_lines`).

Reading takes what can be read: a line that can't is set aside and named once, and so is a segment that is missing.
Times never go back within one driver's log; between two drivers they may, where a clock was set back.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import IO, Any, Protocol

from tuner.errors import RunFolderError, describe_error
from tuner.history.event_lines import DEEPEST, EVENTS, Event, finite, in_json, nested_deeper, with_values, written
from tuner.history.event_reading import EventFollower, Reading, read_all, read_events, segments
from tuner.storage.durable import sync
from tuner.storage.folder import Folder, LocalFolder

__all__ = [
    "CONCLUDING",
    "EVENTS",
    "OBJECT_STORE_SECONDS",
    "OPENING",
    "SEGMENT_EVENTS",
    "Event",
    "EventFollower",
    "EventLog",
    "Listener",
    "Reading",
    "finite",
    "plain",
    "plain_metrics",
    "read_all",
    "read_events",
    "tell",
]

SEGMENT_EVENTS = 20_000
SYNC_SECONDS = 1.0  # at most one sync of a disk in this time, but for what must not be lost:
SYNCED_AT_ONCE = frozenset({"checkpoint_deleted", "trial_ended", "study_interrupted", "study_ended"})
OBJECT_STORE_SECONDS = 20.0
OPENING, CONCLUDING = "opening", "concluding"  # of `tell`, with a `step`: before the first trial, after the last one
ANSWER_SECONDS = 1.0  # the same for answers to orders, because a user waits for them


class Listener(Protocol):
    """An object that follows a run while it happens."""

    def on_event(self, event: Event) -> None:
        """Take one event; called in the driver's loop, so it should return at once."""


def tell(listeners: Iterable[Listener], kind: str, **fields: Any) -> None:
    """Send the listeners an event that isn't stored, because nobody needs it later."""
    event = {"event": kind, "time": time.time(), **fields}
    for listener in listeners:
        with suppress(Exception):  # a failing listener is left out, with a notice, at the next stored event
            listener.on_event(event)


class EventLog:
    """Appends events to a run folder, in its own segment so that an earlier one's torn end is never continued."""

    def __init__(self, folder: Folder) -> None:
        self._writer = _Files(folder) if isinstance(folder, LocalFolder) else _Uploads(folder)
        self._segment = max((number for number, _ in segments(folder)), default=0)
        self._count = 0
        self._begun = self._synced = time.time()
        self._clock = time.monotonic()
        self._begin_segment()

    def append(self, kind: str, **fields: Any) -> Event:
        """Write one event now; returns it as a reader will see it.

        Raises:
            RunFolderError: the run's folder was deleted.
            OSError: it can't be written to.
        """
        now = self._begun + time.monotonic() - self._clock  # times stay in order even if the clock is set back
        line = json.dumps(in_json({"event": kind, "time": now, **fields}), default=plain, allow_nan=True)
        event: Event = json.loads(line, parse_constant=lambda _: None)  # a metric's NaN isn't JSON
        if self._count >= SEGMENT_EVENTS:
            self._begin_segment()
        self._count += 1
        self._writer.append(written(event) + b"\n")
        if isinstance(self._writer, _Uploads):
            if kind in ("order_obeyed", "order_refused"):
                self._writer.hurry()
        elif kind in SYNCED_AT_ONCE or now - self._synced >= SYNC_SECONDS:
            self._writer.flush()
            self._synced = now
        return with_values(event)

    def tend(self) -> list[str]:
        """Regular work on a disk: sync the last events, and restore damaged segments; returns their names."""
        if isinstance(self._writer, _Uploads):
            return []
        self._writer.flush()
        return self._writer.restore()

    def flush(self) -> None:
        """Events so far are in the run folder, also after a power cut; may be called from another thread.

        Raises OSError if that can't be done.
        """
        self._writer.flush()

    def close(self) -> None:
        """Write what is still buffered."""
        self._writer.close()

    def _begin_segment(self) -> None:
        self._segment += 1
        self._count = 0
        self._writer.begin(f"{EVENTS}/{self._segment:06d}.jsonl")


class _Files:
    """The segments on a disk; what they hold is also kept in memory, so that damaged ones can be written again."""

    def __init__(self, folder: LocalFolder) -> None:
        self._folder, self._name, self._synced = folder, "", 0  # bytes
        self._file: IO[bytes] | None = None
        self._contents: dict[str, bytearray] = {}
        for name in (f"{EVENTS}/{name}" for _, name in segments(folder)):
            sync(folder.path / name)  # its driver may have been killed before it did
            with suppress(OSError):
                self._contents[name] = bytearray(folder.read(name))

    def begin(self, name: str) -> None:
        """Go on in a new segment."""
        self.close()
        self._file, self._name, self._synced = self._folder.append_to(name), name, 0
        self._contents[name] = bytearray()

    def append(self, line: bytes) -> None:
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_nlink == 0 and not self._folder.path.is_dir():
            raise RunFolderError(
                f"the run's folder must stay while the search runs, got {self._folder.uri!r} without {self._name}; "
                "start the search again"
            )
        self._file.write(line)
        self._file.flush()
        self._contents[self._name] += line

    def flush(self) -> None:
        """Force what was written to the disk."""
        if self._file is not None and self._synced < (size := len(self._contents[self._name])):
            os.fsync(self._file.fileno())
            self._synced = size

    def restore(self) -> list[str]:
        """Write segments again that were cut off, replaced or deleted; returns their names."""
        if self._file is None or not self._folder.path.is_dir():
            return []
        gone = os.fstat(self._file.fileno()).st_nlink == 0
        damaged = [n for n, held in self._contents.items() if self._size(n) < len(held) or (gone and n == self._name)]
        for name in damaged:
            self._folder.write(name, bytes(self._contents[name]))
        if self._name in damaged:
            self._file.close()
            self._file = self._folder.append_to(self._name)
        return damaged

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _size(self, name: str) -> int:
        """Bytes of a segment; -1 if it isn't there."""
        with suppress(OSError):
            return (self._folder.path / name).stat().st_size
        return -1


class _Uploads:
    """A segment on an object store: an object can't be appended to, so it is written again as a whole.

    The first unwritten line starts a timer, so that no event waits for the next one. What a timer fails to write is
    tried again with the next line, and raises there.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder, self._name = folder, ""
        self._lines: list[bytes] = []
        self._written = 0  # lines
        self._timer: threading.Timer | None = None
        self._failed = self._closed = False
        self._changing, self._writing = threading.Lock(), threading.Lock()

    def begin(self, name: str) -> None:
        """Go on in a new segment, once the one before is written."""
        self.flush()
        with self._writing, self._changing:
            self._name, self._lines, self._written = name, [], 0

    def append(self, line: bytes) -> None:
        with self._changing:
            self._lines.append(line)
            if self._timer is None:
                self._start_timer()
        if self._failed:
            self.flush()

    def close(self) -> None:
        with self._changing:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
        self.flush()

    def hurry(self) -> None:
        """Write what is buffered within ANSWER_SECONDS."""
        with self._changing:
            if self._timer is not None:
                self._timer.cancel()
            self._start_timer(ANSWER_SECONDS)

    def _start_timer(self, seconds: float | None = None) -> None:
        if self._closed:
            return
        self._timer = threading.Timer(OBJECT_STORE_SECONDS if seconds is None else seconds, self._on_time)
        self._timer.daemon = True
        self._timer.start()

    def _on_time(self) -> None:
        with self._changing:
            self._timer = None
        try:
            self.flush()
        except OSError:
            self._failed = True
            with self._changing:
                self._start_timer()

    def flush(self) -> None:
        with self._writing:
            with self._changing:
                content, count = b"".join(self._lines), len(self._lines)
            if count > self._written:
                self._folder.write(self._name, content)
                self._written, self._failed = count, False


def plain(value: object) -> Any:
    """Default of `json.dumps`: numpy and torch scalars as Python numbers, sets and tuples as lists, others as text."""
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return item()
        except (TypeError, ValueError, RuntimeError):
            return str(value)
    return list(value) if isinstance(value, tuple | set | frozenset) else str(value)


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a report as events can store them, NaN and infinities included.

    Raises ValueError with a sentence for what JSON can't express.
    """
    found = {}
    for name, value in metrics.items():
        try:
            found[name] = value if type(value) is float else json.loads(json.dumps(value, default=plain))
            flaw = "one that is nested too deep" if nested_deeper(found[name], DEEPEST // 2) else None
        except Exception as error:  # a value's own class may raise anything
            flaw = _flaw_in_json(error)
        if flaw is not None:
            raise ValueError(f"metrics need plain values, got {flaw} for {name!r}; report numbers")
    return found


def _flaw_in_json(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "one that is nested too deep"
    if "Circular" in str(error):
        return "a list or dict that contains itself"
    if isinstance(error, TypeError):
        return "a dict whose names aren't text"
    return f"one that can't be written ({describe_error(error)})"
