"""The median stopping rule (Golovin et al. 2017, Google Vizier)."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass
from math import fsum
from statistics import fmean

from tuner.errors import StudyError, shown
from tuner.schedule.base import Decision, EarlyStopper, Scheduler, check_grace, effective_grace
from tuner.space.mode import Mode


@dataclass(frozen=True)
class MedianStopping(Scheduler):
    """Stop a trial whose best value so far is worse than the median of the others' running means at the same epoch.

    The means are taken from `grace_epochs` (3 by default) on, as Ray's MedianStoppingRule does; nothing is stopped
    before it, or with fewer than `min_trials` others to compare with.
    """

    grace_epochs: int | None = None
    min_trials: int = 3

    def check(self, max_epochs: int) -> None:
        """Raise StudyError for a grace period or a number of trials that can't work."""
        check_grace("MedianStopping", self.grace_epochs, max_epochs)
        if isinstance(self.min_trials, bool) or not isinstance(self.min_trials, int) or self.min_trials < 1:
            raise StudyError(
                f"MedianStopping.min_trials needs a whole number of at least 1, got {shown(self.min_trials)}; use 3"
            )

    def rungs(self, max_epochs: int) -> list[int]:
        """Every epoch from the grace period on, except the last."""
        return list(range(effective_grace(self.grace_epochs, max_epochs), max_epochs))

    def build(self, *, mode: Mode, max_epochs: int, can_pause: bool, trials: int | None) -> EarlyStopper:
        """The rule's state for one search."""
        return MedianStopper(effective_grace(self.grace_epochs, max_epochs), self.min_trials, mode)


class MedianStopper(EarlyStopper):
    """Keeps every trial's values, oriented so that higher is better."""

    def __init__(self, grace_epochs: int, min_trials: int, mode: Mode) -> None:
        self._grace, self._min_trials = grace_epochs, min_trials
        self._sign = 1.0 if mode == "max" else -1.0
        self._values: dict[str, dict[int, float]] = defaultdict(dict)
        self._means: dict[int, list[float]] = defaultdict(list)  # of all trials' values so far, by epoch, in order

    def _judge(self, trial_id: str, epoch: int, value: float) -> Decision:
        """Compare the trial with the others that have trained as many epochs."""
        values = self._values[trial_id]
        if epoch in values:
            return Decision.CONTINUE
        self._note_means(values, range(max(values, default=epoch) + 1, epoch))
        values[epoch] = self._sign * value
        others = self._means[epoch]
        hopeless = len(others) >= self._min_trials and max(values.values()) < _middle(others)
        self._note_means(values, range(epoch, epoch + 1))
        return Decision.STOP if hopeless else Decision.CONTINUE

    def _note_means(self, values: dict[int, float], epochs: range) -> None:
        """Note the mean of a trial's values for these epochs; there is none before the grace period is over."""
        counted = [value for epoch, value in values.items() if epoch >= self._grace]
        for epoch in epochs if counted else ():
            insort(self._means[epoch], _mean(counted))


def _middle(ordered: list[float]) -> float:
    """The median of numbers in their order."""
    count = len(ordered)
    return ordered[(count - 1) // 2] / 2 + ordered[count // 2] / 2


def _mean(values: list[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:  # the sum is too large for a float
        return fsum(value / len(values) for value in values)
