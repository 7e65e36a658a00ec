"""The limits of a study's budget that end a running search: which of them is reached first."""

from __future__ import annotations

import math
import time
from typing import Literal

from tuner.results.records import SECONDS_PER_HOUR, RunRecord
from tuner.study import Study

Limit = Literal["hours", "device_hours", "total_epochs", "target", "failures"]
MOST_FAILURES = 20  # of the first trials, before any has reported an epoch: the next ones would fail as well


class Limits:
    """Watches one driver's search; what earlier drivers of the run have spent counts.

    `devices` is how many devices a running trial holds: its GPUs, or its CPUs where it has none.
    """

    def __init__(self, study: Study, record: RunRecord, devices: float) -> None:
        self._study, self._record, self._devices = study, record, devices
        self._begun = time.monotonic()
        self._spent_before, self._failed_before = record.active_seconds, record.failed_from_the_start
        self._reached: Limit | None = None
        self._reached_at = 0.0

    def reached(self, *, epochs: int = 0, value: float | None = None) -> Limit | None:
        """The limit that ended the search; the same one from then on, whatever else is reached later.

        `epochs` and `value` are of a report that the record doesn't hold yet.
        """
        if self._reached is None:
            self._reached = self._find(epochs, value)
            self._reached_at = time.monotonic()
        return self._reached

    def overrun_seconds(self) -> float | None:
        """Seconds since a limit was reached, None before."""
        return None if self.reached() is None else time.monotonic() - self._reached_at

    def spent(self, limit: Limit) -> float:
        """What the run has of it so far: time, epochs, its best value (NaN for none), or failures."""
        if limit == "hours":
            return (self._spent_before + time.monotonic() - self._begun) / SECONDS_PER_HOUR
        if limit == "device_hours":
            return self._record.device_hours(self._devices)
        if limit == "total_epochs":
            return self._record.epochs()
        if limit == "target":
            best = self._record.best_value
            return math.nan if best is None else best
        return self._record.failed_from_the_start - self._failed_before

    def _find(self, epochs: int, value: float | None) -> Limit | None:
        budget = self._study.budget
        if budget.hours is not None and self.spent("hours") >= budget.hours:
            return "hours"
        if budget.device_hours is not None and self.spent("device_hours") >= budget.device_hours:
            return "device_hours"
        if budget.total_epochs is not None and self.spent("total_epochs") + epochs >= budget.total_epochs:
            return "total_epochs"
        if self.spent("failures") >= MOST_FAILURES:
            return "failures"
        if budget.target is not None:
            values = [v for v in (value, self.spent("target")) if v is not None and not math.isnan(v)]
            if any(not self._study.better(budget.target, than=v) for v in values):
                return "target"
        return None
