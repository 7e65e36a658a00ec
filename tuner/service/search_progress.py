"""A running search, from its events: its progress, and how long it will take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tuner.history.events import Event, EventFollower
from tuner.history.records import RunRecord
from tuner.results import load_run
from tuner.results.rest_simulation import Ahead
from tuner.results.time_left import Reckoning, TimeLeft, ahead_of, silence_sentence
from tuner.service.model import Progress

RECKON_SECONDS = 5.0  # the least number of seconds between two computations of the time left


class Followed:
    """One run; one thread follows it, any may read it. Raises RunFolderError if there is no run yet."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        run = load_run(path)
        self.path = path
        self._clock = clock
        self._follower = EventFollower(run.folder)
        self._record = run.record = RunRecord(run.metric, run.mode, self._follower.new())
        self._ahead = ahead_of(run)
        self.at_once: int | None = None  # trials on the devices that it has now, if these change
        self._reckoning = Reckoning(RECKON_SECONDS)
        self._left: TimeLeft | None = None
        self._left_at = 0.0
        self._epochs_before = self._record.epochs()
        self._told = False
        self._reading, self._using = threading.Lock(), threading.Lock()

    def new(self) -> bool:
        """Read what has happened since the last call, or before the first; returns whether anything has."""
        with self._reading:
            events = self._follower.new()
            self._take(events)
            news, self._told = bool(events) or not self._told, True
        return news

    def _take(self, events: list[Event]) -> None:
        with self._using:
            for event in events:
                self._record.apply(event)
            limits = self._record.steered.limits
            if limits:
                self._ahead = self._ahead.within(limits)
            self._left_at = self._clock()
            self._left = self._reckoning.left(self._record, self._now_ahead, self._left_at)

    @property
    def _now_ahead(self) -> Ahead:
        workers = [each for each in (self.at_once, self._ahead.workers) if each]
        return replace(self._ahead, workers=min(workers, default=None))

    def close(self) -> None:
        """Read the last events of a search that has ended."""
        self.new()
        with self._using:
            self._record.close()

    @property
    def has_come_on(self) -> bool:
        """Whether it has trained an epoch since it was first followed."""
        return self._record.epochs() > self._epochs_before

    @property
    def ends(self) -> float | None:
        """When it will end, in seconds since 1970, as far as that is known."""
        return None if self._left is None else self._left_at + self._left.middle

    @property
    def places(self) -> dict[str, str]:
        """The running trials by their devices, with a run's names for these: "cuda:0"."""
        with self._using:
            running = [trial for trial in self._record.trials.values() if trial.status == "running" and trial.stays]
            return {device: trial.trial for trial in running for device in trial.stays[-1].devices}

    @contextmanager
    def looking(self) -> Iterator[RunRecord]:
        """Its record, which doesn't change within the block; therefore the block must be short."""
        with self._using:
            yield self._record

    @property
    def running(self) -> tuple[str, ...]:
        """The trials that run now."""
        with self._using:
            return tuple(trial.trial for trial in self._record.trials.values() if trial.status == "running")

    def progress(self) -> Progress:
        """The search's progress."""
        with self._using:
            return self._progress()

    def _progress(self) -> Progress:
        record, best = self._record, self._record.best_trial()
        left = None if self._left is None else self._left.after(self._clock() - self._left_at)
        return Progress(
            metric=record.metric,
            mode=record.mode,
            best=record.winning_value,
            best_trial=None if best is None else best.trial,
            trials={str(status): count for status, count in record.counts().items()},
            epochs=record.epochs(),
            updated=record.last_time or 0.0,
            wanted=self._ahead.trials,
            left=None if left is None else (left.low, left.middle, left.high),
            still=silence_sentence(self._reckoning.still(record, self._clock())) or None,
        )
