"""The limits that end a running search: which of them is reached first."""

from __future__ import annotations

import math
import time
from typing import Any

from tuner.history.records import RunRecord
from tuner.history.similar_failures import failed_from_the_start, fails_always
from tuner.loop.refit_cost import kept_for_refit
from tuner.study.budget import Limit, Spending, limits_of
from tuner.study.declaration import Study

FAILURES, STOP = "failures", "stop"  # reasons other than limits of the budget: trials fail, a user orders it,
CONSTRAINT = "constraint"  # no further configuration is found that it allows
SPENT = ("hours", "device_hours", "total_epochs")  # limits that also end the winner's refit
OF_TIME = SPENT[:2]  # limits that also end what `tuner confirm` adds to a search
SHORTEST_ALLOWANCE = 30.0  # seconds that trials have to end their epoch once a limit is reached, or
EPOCHS_ALLOWED = 2  # this many times the longest epoch so far, whichever is more
MOST_FAILURES = 20  # of the first trials, before any has reported an epoch: the next ones would fail as well


class Limits:
    """Watches one driver's search; time and epochs of earlier drivers of the run count, their failures don't.

    `devices` is how many devices a running trial holds: its GPUs, or its CPUs where it has none. Cheap enough to be
    asked several times a second while nothing is reported.
    """

    def __init__(self, study: Study, record: RunRecord, devices: float) -> None:
        self._study, self._record, self._devices = study, record, devices
        self._begun = time.monotonic()
        self._limits = _watched(study)
        self._spent_before = record.active_seconds
        self._ends_seen = self._ends_before = len(record.ended_trials)
        self._reached: str | None = None
        self._reached_at = math.inf

    def reached(self, *, epochs: int = 0, value: float | None = None) -> str | None:
        """What ended the search: a limit by its name, "failures", or "stop"; later ones don't change it.

        `epochs` and `value` are of a report that the record doesn't hold yet.
        """
        if self._reached is None:
            self._reached = self._find(self._spending(epochs, value))
            self._reached_at = time.monotonic()
        return self._reached

    def ends_confirming(self) -> str | None:
        """The limit that also ends the trials for `tuner confirm`, by its name; None if there is none.

        If the search had ended before, its limits don't count: these trials were requested in spite of them.
        """
        reached = self.reached()
        hard = (FAILURES, STOP) if self._record.confirming.alone else (FAILURES, STOP, *OF_TIME)
        return reached if reached in hard else None

    @property
    def confirms(self) -> bool:
        """Whether trials that `tuner confirm` asked for wait or run, and no reached limit ends them."""
        left = self._record.confirming.waiting or any(t.confirms and t.live for t in self._record.trials.values())
        return bool(left) and self.ends_confirming() is None

    def ends_refit(self, *, epochs: int = 0) -> str | None:
        """The limit that ends the winner's refit or leaves it no time, by its name; None if there is none.

        The refit may use what the search kept for it. If it was asked for after the search ended, the search's limits
        don't count.
        """
        reached = self.reached()
        if reached in (FAILURES, STOP):
            return reached
        if self._record.confirming.alone:
            return None
        spending = self._spending(epochs, keep=False)
        spent = ((limit, value) for limit, value in self._limits if limit.name in SPENT)
        return next((limit.name for limit, value in spent if limit.reached and limit.reached(value, spending)), None)

    def end_reason(self, ran_out: str | None) -> str:
        """What ended the search: a limit by its name, "failures", "stop", or "space" where all of it was tried.

        `ran_out` is why nothing more was suggested before all of it was tried, if that is known. If the search had
        ended before trials were confirmed, the reason of that first end.
        """
        reached, confirming = self.reached(), self._record.confirming
        if confirming.alone and confirming.ended_by is not None and self.ends_confirming() is None:
            return confirming.ended_by
        if reached is not None:
            return reached
        budget = self._study.budget.trials
        if ran_out is not None:
            return ran_out
        return "space" if budget is None or self._record.configurations < budget else "trials"

    def replace(self, study: Study) -> None:
        """Watch the limits of this study from now on; a limit that was reached only counts if it is reached again."""
        self._study = study
        self._limits = _watched(study)
        if self._reached not in (FAILURES, STOP):
            self._reached, self._reached_at = None, math.inf

    def look_again(self) -> None:
        """A user's `stop` no longer counts if more trials were asked for since."""
        if self._reached == STOP and self._record.steered.stopped_by is None:
            self._reached, self._reached_at = None, math.inf

    def reached_by(self, study: Study) -> str | None:
        """Which limit of a study with other limits would already be reached; None for none."""
        spending = self._spending()
        found = ((limit, value) for limit, value in _watched(study) if limit.reached and limit.reached(value, spending))
        return next((limit.name for limit, _ in found), None)

    def overrun_seconds(self) -> float | None:
        """How long ago the limit was found to be reached; None before."""
        return None if self.reached() is None else time.monotonic() - self._reached_at

    def refusal(self) -> str | None:
        """Why the run can't go on, in a sentence; None while no limit is reached."""
        reached, spending = self.reached(), self._spending()
        found = ((limit, value) for limit, value in self._limits if limit.name == reached)
        return next((limit.refusal(value, spending) for limit, value in found), None)

    def _spending(self, epochs: int = 0, value: float | None = None, *, keep: bool = True) -> Spending:
        seconds = self._spent_before + time.monotonic() - self._begun
        kept = kept_for_refit(self._study, self._record, epochs) if keep else (0, 0.0)
        return Spending(self._record, self._devices, seconds, time.time(), self._study.mode, epochs, value, *kept)

    def _find(self, spending: Spending) -> str | None:
        if self._record.steered.stopped_by is not None:
            return STOP
        for limit, value in self._limits:
            if limit.reached is not None and limit.reached(value, spending):
                return limit.name
        return FAILURES if self._all_fail() else None

    def _all_fail(self) -> bool:
        """Whether all further trials are expected to fail; computed again only after another trial has ended."""
        ended = self._record.ended_trials
        if len(ended) == self._ends_seen:
            return False
        self._ends_seen = len(ended)
        alike, here = self._study.failures.alike, ended[self._ends_before :]
        if alike is None:
            return False
        if failed_from_the_start(self._record, here) >= MOST_FAILURES:
            return True
        running = (trial for trial in self._record.trials.values() if trial.live)
        return fails_always(here, alike, running, now=time.time())


def _watched(study: Study) -> list[tuple[Limit, Any]]:
    """The study's limits that end running trials, with their values."""
    return [(limit, value) for limit, value in limits_of(vars(study.budget)) if limit.reached]


class EpochTimes:
    """Times the epochs of the trials that run, by the monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # the start or last report of each
        self._longest = 0.0

    @property
    def allowance(self) -> float:
        """Seconds after which a trial that hasn't ended its epoch counts as hanging."""
        return max(SHORTEST_ALLOWANCE, EPOCHS_ALLOWED * self._longest)

    def start(self, trial: str) -> None:
        """The trial begins on a worker."""
        self._since[trial] = time.monotonic()

    def report(self, trial: str) -> None:
        """The trial has ended an epoch, and begins the next one."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since.get(trial, now))
        self._since[trial] = now

    def end(self, trial: str) -> None:
        """The trial is over."""
        self._since.pop(trial, None)
