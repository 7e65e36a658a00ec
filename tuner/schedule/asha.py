"""Asynchronous successive halving (Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.errors import StudyError
from tuner.schedule.base import (
    Decision,
    EarlyStopper,
    Mode,
    Scheduler,
    check_grace,
    check_reduction,
    effective_grace,
    rung_epochs,
)


@dataclass(frozen=True)
class ASHA(Scheduler):
    """At rungs of grace_epochs · reduction_factor^k epochs only the best 1/reduction_factor of the trials go on.

    `rule="stop"` judges a trial the moment it reaches a rung, against those that reached it before (as Ray's
    AsyncHyperBandScheduler does), and ends it where it is not among the best. `rule="promote"` pauses every trial at a
    rung and lets it go on once it is among the best; where trials can't pause it falls back to "stop".
    `grace_epochs` defaults to 3, less where trials are shorter.
    """

    grace_epochs: int | None = None
    reduction_factor: float = 3
    rule: Literal["stop", "promote"] = "stop"

    def check(self, max_epochs: int) -> None:
        """Raise StudyError for a grace period or reduction factor that can't work."""
        check_grace("ASHA", self.grace_epochs, max_epochs)
        check_reduction("ASHA", self.reduction_factor)
        if self.rule not in ("stop", "promote"):
            raise StudyError(f"ASHA.rule needs 'stop' or 'promote', got {self.rule!r}; use one of them")

    def rungs(self, max_epochs: int) -> list[int]:
        """Epochs at which trials are judged."""
        return rung_epochs(effective_grace(self.grace_epochs, max_epochs), self.reduction_factor, max_epochs)

    def build(self, *, mode: Mode, max_epochs: int, can_pause: bool, trials: int | None) -> EarlyStopper:
        """The stopping or the promoting variant."""
        variant = PromotingASHA if self.rule == "promote" and can_pause else StoppingASHA
        return variant(self.rungs(max_epochs), self.reduction_factor, mode)


class StoppingASHA(EarlyStopper):
    """Stops a trial at a rung where its value is below the 1 - 1/reduction_factor quantile of those before it."""

    def __init__(self, rungs: list[int], reduction_factor: float, mode: Mode) -> None:
        self._factor, self._sign = reduction_factor, 1.0 if mode == "max" else -1.0
        self._values: dict[int, list[float]] = {rung: [] for rung in rungs}

    def report(self, trial_id: str, epoch: int, value: float) -> Decision:
        """Judge the trial where the epoch is a rung."""
        values = self._values.get(epoch)
        if values is None:
            return Decision.CONTINUE
        good = self._sign * value
        keep = not values or good >= np.percentile(values, (1 - 1 / self._factor) * 100)
        values.append(good)
        return Decision.CONTINUE if keep else Decision.STOP


class PromotingASHA(EarlyStopper):
    """Pauses at every rung; goes on with the best paused trial of the highest rung that has one to promote."""

    def __init__(self, rungs: list[int], reduction_factor: float, mode: Mode) -> None:
        self._rungs, self._factor = rungs, reduction_factor
        self._sign = 1.0 if mode == "max" else -1.0
        self._values: dict[int, dict[str, float]] = {rung: {} for rung in rungs}
        self._promoted: dict[int, set[str]] = {rung: set() for rung in rungs}
        self._over: set[str] = set()

    def report(self, trial_id: str, epoch: int, value: float) -> Decision:
        """Pause the trial where the epoch is a rung."""
        if epoch not in self._values:
            return Decision.CONTINUE
        self._values[epoch][trial_id] = self._sign * value
        return Decision.PAUSE

    def end(self, trial_id: str) -> None:
        """Its values still count in the rungs; it is never promoted."""
        self._over.add(trial_id)

    def resumable(self) -> str | None:
        """The best trial among a rung's top 1/reduction_factor that is not yet promoted."""
        for rung in reversed(self._rungs):
            values, promoted = self._values[rung], self._promoted[rung]
            ranked = sorted(values, key=lambda trial: (-values[trial], trial))
            for trial in ranked[: int(len(values) / self._factor)]:
                if trial not in promoted and trial not in self._over:
                    promoted.add(trial)
                    return trial
        return None
