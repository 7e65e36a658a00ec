"""What a run has spent: the time of its drivers, that of its trials on workers, and epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate

from tuner.history.trial_record import TrialRecord
from tuner.study.budget import SECONDS_PER_HOUR


@dataclass
class ActiveTime:
    """The stretches of time in which a driver worked on a run, from its first event to its last; in seconds since 1970.

    `since` is the start of the stretch that still goes on, None if no driver works on the run.
    """

    ended: list[tuple[float, float]] = field(default_factory=list)
    since: float | None = None

    def begin(self, time: float) -> None:
        """A driver begins to work on the run."""
        self.since = time

    def end(self, time: float | None) -> None:
        """The driver's last event was at this time."""
        if self.since is not None and time is not None:
            self.ended.append((self.since, max(self.since, time)))  # a clock may have been set back
            self.since = None

    @property
    def seconds(self) -> float:
        """Seconds of the stretches that have ended."""
        return sum((end - start for start, end in self.ended), 0.0)

    def until(self, time: float | None) -> float:
        """Seconds up to a time that is not before the last stretch."""
        going_on = 0.0 if self.since is None or time is None else max(0.0, time - self.since)
        return self.seconds + going_on

    def at(self, time: float) -> float:
        """How many seconds of search had passed at a time; in a pause, those up to its start.

        Clocks of two drivers may differ, so that their stretches overlap: the later stretch that has this time counts.
        """
        begun = [each for each in self._stretches() if each[0] <= time]
        within = [each for each in begun if time <= each[1]]
        return sum(before + min(time, end) - start for start, end, before in (within or begun)[-1:])

    def _stretches(self) -> list[tuple[float, float, float]]:
        """Start and end of each stretch, and the seconds before it; the one that goes on has no end."""
        known = [*self.ended, *([] if self.since is None else [(self.since, math.inf)])]
        before = accumulate((end - start for start, end in known), initial=0.0)
        return [(start, end, seconds) for (start, end), seconds in zip(known, before, strict=False)]


class Spent:
    """The part of a run's record that says what was spent."""

    def __init__(self) -> None:
        self.active = ActiveTime()  # of drivers
        self.last_time: float | None = None  # of an event
        self.on_workers: dict[str, TrialRecord] = {}  # running trials
        self._left_seconds = 0.0  # of all stays on workers that are over
        self._epochs = self._later_epochs = self._epochs_again = 0

    @property
    def active_seconds(self) -> float:
        """How long the drivers that have ended have worked on the run."""
        return self.active.seconds

    @property
    def active_since(self) -> float | None:
        """When the driver began that works on the run; None if none does."""
        return self.active.since

    @property
    def wall_seconds(self) -> float:
        """How long drivers have worked on the run, up to its last event."""
        return self.active.until(self.last_time)

    def epochs(self) -> int:
        """Epochs trained by all trials together, each counted once."""
        return self._epochs

    def epochs_again(self) -> int:
        """How many epochs were trained in addition, because trials had to go on from before them."""
        return self._epochs_again

    def search_epochs(self) -> int:
        """Epochs without those of `tuner confirm` and of a refit after the end, which no limit counts."""
        return self._epochs - self._later_epochs

    def running_seconds(self, now: float | None = None) -> float:
        """How long all trials together have run, up to the last event or a later time; those of one stay share it."""
        latest = max(self.last_time or 0.0, now or 0.0)
        running = ((t.running_since, t.together) for t in self.on_workers.values() if t.running_since is not None)
        return self._left_seconds + sum(max(0.0, latest - since) / together for since, together in running)

    def running_seconds_of(self, trial: TrialRecord) -> float:
        """How long one trial has run, up to the last event."""
        now = 0.0 if trial.running_since is None else max(0.0, (self.last_time or 0.0) - trial.running_since)
        return trial.running_seconds + now / trial.together

    def device_hours(self, devices: float, now: float | None = None) -> float:
        """Device hours that trials used, at this number of devices each, up to the last event or a later time."""
        return devices * self.running_seconds(now) / SECONDS_PER_HOUR

    def _count_epoch(self, *, again: bool, later: bool) -> None:
        """An epoch was reported: `again` if it had been before, `later` if no limit counts it."""
        self._epochs_again += again
        self._epochs += not again
        self._later_epochs += later and not again
