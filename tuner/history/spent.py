"""What a run has spent: the time of its drivers, that of its trials on workers, and epochs."""

from __future__ import annotations

from tuner.history.active_time import ActiveTime
from tuner.history.trial_record import TrialRecord
from tuner.study.budget import SECONDS_PER_HOUR


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
        """How long all trials together have run, up to the last event or a later time."""
        latest = max(self.last_time or 0.0, now or 0.0)
        since = (t.running_since for t in self.on_workers.values() if t.running_since is not None)
        return self._left_seconds + sum(max(0.0, latest - start) for start in since)

    def running_seconds_of(self, trial: TrialRecord) -> float:
        """How long one trial has run, up to the last event."""
        now = 0.0 if trial.running_since is None else max(0.0, (self.last_time or 0.0) - trial.running_since)
        return trial.running_seconds + now

    def device_hours(self, devices: float, now: float | None = None) -> float:
        """Device hours that trials used, at this number of devices each, up to the last event or a later time."""
        return devices * self.running_seconds(now) / SECONDS_PER_HOUR

    def _count_epoch(self, *, again: bool, later: bool) -> None:
        """An epoch was reported: `again` if it had been before, `later` if no limit counts it."""
        self._epochs_again += again
        self._epochs += not again
        self._later_epochs += later and not again
