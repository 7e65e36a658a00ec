"""The data of model-based searchers: each trial's point in the unit cube, and its curve."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.search.base import EndStatus, Floats, Problem, Searcher, require_finite
from tuner.space import Config, Space
from tuner.space.pareto import order

ENOUGH = 20  # candidates that meet a constraint, best first


class CurveSearcher(Searcher):
    """Keeps the trials' points and curves, higher values better; subclasses decide what to suggest.

    A failed trial has no curve, so that good epochs before its failure attract no other trials; a subclass counts it
    among the worst. If it runs again, it has the curve that it had.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self._space = problem, problem.space
        self._levels = fidelities(problem)
        self._units: dict[int, Floats] = {}
        self._curves: dict[int, dict[int, float]] = {}
        self._running: set[int] = set()
        self._failed: dict[int, dict[int, float]] = {}  # the curves until the failure
        self._prices: dict[int, float] = {}  # the second objective, if there is one, as it was last told
        self._prices_at: dict[int, dict[int, float]] = {}  # by trial and epoch
        self._told = 0  # changes with every report

    def adopt(self, number: int, config: Config) -> None:
        """A trial that runs from now on."""
        self._units[number] = np.array(self._space.encode(config))
        self._curves[number] = {}
        self._running.add(number)
        self._told += 1

    def price(self, number: int, value: float) -> None:
        """The trial's second objective."""
        self._prices[number] = value
        self._told += 1

    def observe(self, number: int, epoch: int, value: float) -> None:
        """A point of the trial's curve. Raises ValueError for NaN and infinity."""
        require_finite(number, epoch, value)
        self._curves[number][epoch] = self._problem.sign * value
        if number in self._prices:
            self._prices_at.setdefault(number, {})[epoch] = self._prices[number]
        self._told += 1

    def end(self, number: int, status: EndStatus) -> None:
        """The trial is over; if it failed, its curve no longer counts."""
        self._running.discard(number)
        self._told += 1
        if status == "failed":
            self._failed[number] = self._curves.pop(number)

    def restart(self, number: int) -> None:
        """The trial's curve counts again."""
        self._curves[number] = self._failed.pop(number)
        self._running.add(number)
        self._told += 1

    def _by_both(self, values: Mapping[int, float], prices: Mapping[int, float]) -> list[int]:
        """Trials with a price in the order of both objectives."""
        trials = [trial for trial in values if trial in prices]
        places = order(np.array([(values[trial], prices[trial]) for trial in trials]).reshape(-1, 2))
        return [trials[place] for place in places]


def fidelities(problem: Problem) -> tuple[int, ...]:
    """The epochs that a model looks at: the rungs of early stopping, or 3, 9, 27, … without any; and the last."""
    rungs = problem.rungs or tuple(3**k for k in range(1, 20) if 3**k < problem.max_epochs)
    return (*rungs, problem.max_epochs)


def allowed(space: Space, candidates: Floats) -> Floats:
    """The first of the candidates [n, dimensions] that meet the space's constraint, or all if none does."""
    if space.constraint is None:
        return candidates
    found: list[Floats] = []
    for candidate in candidates:
        if len(found) == ENOUGH:
            break
        if space.allows(space.decode(candidate)):
            found.append(candidate)
    return np.array(found) if found else candidates
