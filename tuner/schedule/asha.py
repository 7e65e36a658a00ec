"""Asynchronous successive halving (Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.errors import StudyError, shown
from tuner.schedule.base import DEFAULT_GRACE_EPOCHS, Decision, EarlyStopper, Halving, rung_at
from tuner.space.mode import Mode
from tuner.space.pareto import order
from tuner.space.values import is_one_of

FIRST_EPOCH_ADVICE = (  # as benchmarks/search.py measures it
    "grace_epochs=1 compares trials after their first epoch, which says little of their last: on 8 benchmark tasks "
    "MultiFidelityGP ended with a regret of 0.28 instead of 0.10, HyperOpt with 0.33 instead of 0.20 (a random search "
    "with 0.37); leave grace_epochs out for 3"
)


@dataclass(frozen=True)
class ASHA(Halving):
    """At rungs of grace_epochs · reduction_factor^k epochs only the best 1/reduction_factor of the trials go on.

    `rule="promote"` pauses every trial at a rung and lets it go on once it is among the best; when all trials have
    started and none is left to promote, the best one that got farthest is trained to its end. Where trials can't pause
    it falls back to "stop". `rule="stop"` judges a trial the moment it reaches a rung, against those that reached it
    before (as Ray's AsyncHyperBandScheduler does), and ends it if it is not among the best. `grace_epochs` defaults to
    3, or less if trials are shorter. If a study has two objectives, the best at a rung are those of the front of both,
    spread over it, then those of the next front (MO-ASHA, Schmucker et al. 2021).
    """

    rule: Literal["promote", "stop"] = "promote"

    def check(self, max_epochs: int) -> None:
        """Raise StudyError for a grace period, reduction factor or rule that can't work."""
        super().check(max_epochs)
        if not is_one_of(self.rule, ("stop", "promote")):
            raise StudyError(f"ASHA.rule needs 'promote' or 'stop', got {shown(self.rule)}; use one of them")

    def advice(self, max_epochs: int) -> str | None:
        """Warns of the cost of a grace period of one epoch."""
        return FIRST_EPOCH_ADVICE if self.grace_epochs == 1 and max_epochs > DEFAULT_GRACE_EPOCHS else None

    def build(self, *, mode: Mode, max_epochs: int, can_pause: bool, trials: int | None) -> EarlyStopper:
        """The stopping or the promoting variant."""
        rungs = self.rungs(max_epochs)
        if self.rule == "promote" and can_pause:
            return PromotingASHA(rungs, self.reduction_factor, mode, trials)
        return StoppingASHA(rungs, self.reduction_factor, mode)


class StoppingASHA(EarlyStopper):
    """Stops a trial at a rung where its value is below the 1 - 1/reduction_factor quantile of those before it."""

    def __init__(self, rungs: list[int], reduction_factor: float, mode: Mode) -> None:
        self._epochs, self._percentile = rungs, (1 - 1 / reduction_factor) * 100
        self._sign = 1.0 if mode == "max" else -1.0
        self._share, self._prices = 1 / reduction_factor, dict[str, float]()
        self._recorded: list[dict[str, float]] = [{} for _ in rungs]
        self._then: list[dict[str, float]] = [{} for _ in rungs]  # the prices when trials reached the rung

    def price(self, trial_id: str, value: float) -> None:
        """The trials that have one are compared by both."""
        self._prices[trial_id] = value

    def _judge(self, trial_id: str, epoch: int, value: float) -> Decision:
        """Judge the trial once at each rung, by its first report there."""
        rung = rung_at(self._epochs, epoch)
        if rung is None or trial_id in self._recorded[rung]:
            return Decision.CONTINUE
        recorded, good = self._recorded[rung], self._sign * value
        if trial_id in self._prices:
            recorded[trial_id], self._then[rung][trial_id] = good, self._prices[trial_id]
            place = ranked(recorded, self._then[rung]).index(trial_id)
            return Decision.CONTINUE if place < max(1, self._share * len(recorded)) else Decision.STOP
        keep = not recorded or good >= np.percentile(list(recorded.values()), self._percentile)
        recorded[trial_id] = good
        return Decision.CONTINUE if keep else Decision.STOP


def ranked(values: Mapping[str, float], prices: Mapping[str, float]) -> list[str]:
    """The trials in the order of `pareto.order`; of equals the smaller id first. One without a price has the worst."""
    trials, worst = sorted(values), min(prices.values())
    points = np.array([(values[trial], prices.get(trial, worst)) for trial in trials])
    return [trials[place] for place in order(points)]


class _Rung:
    """The trials that reached the rung, the best first (of equals the smaller id), and those that still wait there."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}  # higher is better
        self.passed = False  # whether any trial was promoted
        self._ranked: list[tuple[float, str]] = []
        self._waiting: list[tuple[float, str]] = []

    def reach(self, trial: str, value: float) -> None:
        """The trial has reached the rung, and waits."""
        self.values[trial] = value
        insort(self._ranked, (-value, trial))
        insort(self._waiting, (-value, trial))

    def leave(self, trial: str) -> None:
        """The trial no longer waits here."""
        if trial in self.values:
            place = (-self.values[trial], trial)
            at = bisect_left(self._waiting, place)
            if self._waiting[at : at + 1] == [place]:
                del self._waiting[at]

    def promote(self, trial: str) -> None:
        """The trial goes on."""
        self.leave(trial)
        self.passed = True

    def first_waiting(self, best: int) -> str | None:
        """The best waiting trial, if it ranks among the first `best` of all that reached the rung."""
        return self._waiting[0][1] if self._border(best) else None

    def waiting_below(self, best: int) -> list[str]:
        """Waiting trials that don't rank among the first `best`, the best first."""
        return [trial for _, trial in self._waiting[self._border(best) :]]

    def count_waiting(self, best: int) -> int:
        """How many of the waiting trials rank among the first `best`."""
        return self._border(best)

    def _border(self, best: int) -> int:
        """The index in `_waiting` after those that rank among the first `best`."""
        return bisect_left(self._waiting, self._ranked[best]) if best < len(self._ranked) else len(self._waiting)


class _RungOfTwo(_Rung):
    """A rung whose trials rank by two objectives: their order changes as others reach it."""

    def __init__(self, prices: Mapping[str, float]) -> None:
        super().__init__()
        self._prices, self._here, self._places = prices, set[str](), dict[str, int]()
        self._then: dict[str, float] = {}  # the prices when trials reached it

    def reach(self, trial: str, value: float) -> None:
        self.values[trial] = value
        self._then[trial] = self._prices.get(trial, min(self._prices.values()))
        self._here.add(trial)
        self._places = {each: place for place, each in enumerate(ranked(self.values, self._then))}

    def leave(self, trial: str) -> None:
        self._here.discard(trial)

    def first_waiting(self, best: int) -> str | None:
        first = min(self._here, key=self._places.__getitem__, default=None)
        return first if first is not None and self._places[first] < best else None

    def waiting_below(self, best: int) -> list[str]:
        return sorted((one for one in self._here if self._places[one] >= best), key=self._places.__getitem__)

    def count_waiting(self, best: int) -> int:
        return sum(self._places[one] < best for one in self._here)


class PromotingASHA(EarlyStopper):
    """Pauses at every rung; goes on with the best paused trial of the highest rung that has one to promote.

    `trials` is the most that will be started, which tells early which paused trials have no chance left. A trusted
    trial passes the first rung unjudged, if there is a second: after few epochs good configurations may look bad.
    """

    def __init__(self, rungs: list[int], reduction_factor: float, mode: Mode, trials: int | None = None) -> None:
        self._epochs, self._factor = rungs, reduction_factor
        self._sign = 1.0 if mode == "max" else -1.0
        self._rungs = [_Rung() for _ in rungs]
        self._to_come: float = math.inf if trials is None else trials
        self._climbing: set[str] = set()
        self._trusted: set[str] = set()
        self._prices: dict[str, float] = {}

    def price(self, trial_id: str, value: float) -> None:
        """All trials have one, or none."""
        if not self._prices:
            self._rungs = [_RungOfTwo(self._prices) for _ in self._epochs]
        self._prices[trial_id] = value

    def start(self, trial_id: str) -> None:
        """One trial fewer is still to start."""
        self._to_come = max(0, self._to_come - 1)
        self._climbing.add(trial_id)

    def trust(self, trial_id: str) -> None:
        """Judge the trial at the second rung first."""
        self._trusted.add(trial_id)

    def _judge(self, trial_id: str, epoch: int, value: float) -> Decision:
        """Pause the trial at its first report at or after each rung."""
        rung = rung_at(self._epochs, epoch)
        if rung is None or trial_id in self._rungs[rung].values:
            return Decision.CONTINUE
        self._rungs[rung].reach(trial_id, self._sign * value)
        if rung == 0 and trial_id in self._trusted and len(self._rungs) > 1:
            self._rungs[0].promote(trial_id)
            return Decision.CONTINUE
        self._climbing.discard(trial_id)
        return Decision.PAUSE

    def end(self, trial_id: str) -> None:
        """The trial is over: its values still count in the rungs, but it is never promoted."""
        self._climbing.discard(trial_id)
        for rung in self._rungs:
            rung.leave(trial_id)

    def restart(self, trial_id: str) -> None:
        """The trial runs again and is on its way to the next rung."""
        self._climbing.add(trial_id)

    def resumable(self) -> str | None:
        """The best trial not yet promoted among a rung's top 1/reduction_factor, highest rung first."""
        for rung in reversed(self._rungs):
            trial = rung.first_waiting(self._quota(len(rung.values)))
            if trial is not None:
                return self._promote(rung, trial)
        return self._last_survivor()

    def _last_survivor(self) -> str | None:
        """The best trial of the highest rung, if too few reached it to promote a share of them, and no more will."""
        reached = [rung for rung in self._rungs if rung.values]
        if not reached or self._to_come or self._climbing or reached[-1].passed:
            return None
        trial = reached[-1].first_waiting(1)
        return None if trial is None else self._promote(reached[-1], trial)

    def _promote(self, rung: _Rung, trial_id: str) -> str:
        rung.promote(trial_id)
        self._climbing.add(trial_id)
        return trial_id

    def eliminated(self) -> list[str]:
        """Paused trials that stay below their rung's top 1/reduction_factor however many more can still reach it."""
        if math.isinf(self._to_come):
            return []
        hopeless: list[str] = []
        arriving = int(self._to_come)
        for rung in self._rungs:
            arriving += sum(self._rung_ahead(trial) is rung for trial in self._climbing)
            quota = max(1, self._quota(len(rung.values) + arriving))
            hopeless += rung.waiting_below(quota)
            arriving += rung.count_waiting(quota)
        for trial in hopeless:
            for rung in self._rungs:
                rung.leave(trial)
        return hopeless

    def more_coming(self, coming: bool) -> None:
        """Without new trials the rungs fill no further than with those that were started."""
        if not coming:
            self._to_come = 0

    def expect(self, trials: int | None) -> None:
        """At most `trials` may still reach the first rung."""
        self._to_come = math.inf if trials is None else trials

    def _quota(self, reached: int) -> int:
        return int(reached / self._factor)

    def _rung_ahead(self, trial_id: str) -> _Rung | None:
        """The lowest rung that the trial has not reached."""
        return next((rung for rung in self._rungs if trial_id not in rung.values), None)
