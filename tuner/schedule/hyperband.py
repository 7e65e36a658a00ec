"""HyperBand (Li et al. 2018, Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from tuner.schedule.asha import StoppingASHA, ranked
from tuner.schedule.base import Decision, EarlyStopper, Halving
from tuner.space.mode import Mode


@dataclass(frozen=True)
class HyperBand(Halving):
    """Successive halving in brackets that differ in how many trials they start and how long their grace period is.

    Brackets are filled one after another, the one with the shortest grace period first, and again from the first when
    all are full. A bracket's trials pause at each of its rungs until all are there; the best 1/reduction_factor go on.
    If trials can't pause, each bracket stops its trials asynchronously instead (as ASHA does). `grace_epochs` is that
    of the first bracket and defaults to 3, or less if trials are shorter: with the paper's 1 chance decides too much.
    """

    @property
    def forecast(self) -> dict[str, Any]:
        """Its rule is simulated."""
        return {"brackets": True, **super().forecast}

    def build(self, *, mode: Mode, max_epochs: int, can_pause: bool, trials: int | None) -> EarlyStopper:
        """The early stopper over all brackets."""
        rungs = self.rungs(max_epochs)
        return HyperBandStopper(rungs, self.reduction_factor, mode, can_pause=can_pause, trials=trials)


@dataclass
class _Bracket:
    """Trials that compete with each other.

    `open` members are on their way to the current rung, `values` are those of the members that wait there, and `prices`
    their second objective when they came.
    """

    rungs: list[int]
    capacity: int
    members: list[str] = field(default_factory=list)
    level: int = 0
    values: dict[str, float] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)

    @property
    def full(self) -> bool:
        return len(self.members) >= self.capacity or self.level > 0

    @property
    def next_rung(self) -> float:
        return self.rungs[self.level] if self.level < len(self.rungs) else math.inf


class HyperBandStopper(EarlyStopper):
    """Synchronous brackets over `rungs`; asynchronous ones if trials can't pause.

    With `trials`, the most that will be started, the last bracket knows when it has all the members it will get.
    """

    def __init__(
        self, rungs: list[int], reduction_factor: float, mode: Mode, *, can_pause: bool, trials: int | None = None
    ) -> None:
        self._factor, self._mode, self._can_pause = reduction_factor, mode, can_pause
        self._sign = 1.0 if mode == "max" else -1.0
        self._shapes = self._bracket_shapes(rungs)
        self._brackets: list[_Bracket] = []
        self._bracket_of: dict[str, _Bracket] = {}
        self._asynchronous: dict[int, StoppingASHA] = {}
        self._resumable: list[str] = []
        self._eliminated: list[str] = []
        self._to_come: float = math.inf if trials is None else trials
        self._prices: dict[str, float] = {}

    def price(self, trial_id: str, value: float) -> None:
        """The trials of a bracket are compared by both."""
        self._prices[trial_id] = value
        if not self._can_pause:
            self._stopper_of(self._bracket_of[trial_id]).price(trial_id, value)

    def start(self, trial_id: str) -> None:
        """Put the trial into the bracket that is being filled."""
        self._to_come = max(0, self._to_come - 1)
        if not self._brackets or self._brackets[-1].full:
            rungs, capacity = next(self._shapes)
            self._brackets.append(_Bracket(rungs, capacity))
        bracket = self._brackets[-1]
        bracket.members.append(trial_id)
        bracket.open.add(trial_id)
        self._bracket_of[trial_id] = bracket

    def _judge(self, trial_id: str, epoch: int, value: float) -> Decision:
        """Pause the trial at its bracket's rung until the others are there."""
        bracket = self._bracket_of[trial_id]
        if not self._can_pause:
            return self._stopper_of(bracket).report(trial_id, epoch, value)
        if epoch > bracket.next_rung and trial_id in bracket.values:
            del bracket.values[trial_id]  # it went on although the rung is not closed, so it no longer competes
        if epoch < bracket.next_rung or trial_id not in bracket.open:
            return Decision.CONTINUE
        bracket.values[trial_id] = self._sign * value
        if trial_id in self._prices:
            bracket.prices[trial_id] = self._prices[trial_id]
        bracket.open.discard(trial_id)
        self._close_rung_if_all_there(bracket)
        return Decision.PAUSE

    def end(self, trial_id: str) -> None:
        """The others of its bracket need not wait for it."""
        bracket = self._bracket_of[trial_id]
        bracket.open.discard(trial_id)
        bracket.values.pop(trial_id, None)
        self._resumable = [trial for trial in self._resumable if trial != trial_id]
        self._eliminated = [trial for trial in self._eliminated if trial != trial_id]
        self._close_rung_if_all_there(bracket)

    def restart(self, trial_id: str) -> None:
        """The others of its bracket wait for it at the rung where the bracket is now."""
        self._bracket_of[trial_id].open.add(trial_id)

    def resumable(self) -> str | None:
        """The next of the trials that won their rung."""
        return self._resumable.pop(0) if self._resumable else None

    def eliminated(self) -> list[str]:
        """The trials that lost their rung since the last call."""
        lost, self._eliminated = self._eliminated, []
        return lost

    def more_coming(self, coming: bool) -> None:
        """Without new trials the last bracket closes with the members it has."""
        if not coming:
            self._to_come = 0
        if self._brackets:
            self._close_rung_if_all_there(self._brackets[-1])

    def expect(self, trials: int | None) -> None:
        """The last bracket waits for these trials, unless it has already gone on without them."""
        self._to_come = math.inf if trials is None else trials
        if self._brackets:
            self._close_rung_if_all_there(self._brackets[-1])

    def _close_rung_if_all_there(self, bracket: _Bracket) -> None:
        complete = bracket.full or self._to_come == 0
        if bracket.open or not complete or not bracket.values or not self._can_pause:
            return
        order = sorted(bracket.values, key=lambda trial: (-bracket.values[trial], trial))
        order = ranked(bracket.values, bracket.prices) if bracket.prices else order
        winners = order[: max(1, int(len(order) / self._factor))]
        self._resumable += winners
        self._eliminated += order[len(winners) :]
        bracket.open, bracket.values = set(winners), {}
        bracket.level += 1

    def _stopper_of(self, bracket: _Bracket) -> StoppingASHA:
        """Brackets with the same grace period judge their trials together."""
        grace = bracket.rungs[0] if bracket.rungs else 0
        if grace not in self._asynchronous:
            self._asynchronous[grace] = StoppingASHA(bracket.rungs, self._factor, self._mode)
        return self._asynchronous[grace]

    def _bracket_shapes(self, rungs: list[int]) -> Iterator[tuple[list[int], int]]:
        """Endlessly, each bracket's rungs and trials: n = ⌈(s_max + 1) / (s + 1) · η^s⌉ for s = s_max … 0."""
        levels = len(rungs)
        shapes = [
            (rungs[levels - s :], math.ceil((levels + 1) / (s + 1) * self._factor**s)) for s in range(levels, -1, -1)
        ]
        return cycle(shapes)
