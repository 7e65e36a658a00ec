"""Search with a Gaussian process that learns from every trial's curve, also from short ones."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.errors import StudyError, shown
from tuner.machine.one_thread import on_one_thread
from tuner.search.base import (
    COUNT_RULE,
    EndStatus,
    Floats,
    Problem,
    SearchAlgorithm,
    Searcher,
    check_model_based,
    is_count,
)
from tuner.search.observations import CurveSearcher, allowed
from tuner.search.points import Features
from tuner.search.random import SobolSearcher
from tuner.space import Config, Space
from tuner.space.pareto import fronts

if TYPE_CHECKING:
    from tuner.search.gaussian_process import CurveKernel, CurveProcess, Rows

FLOOR = 0.2  # robust standard deviations above the median, below which all values count the same
LOWEST = -10.0  # the same with two objectives, where the best of the cheap ones may be far below the median
SMOOTHER = 2.0  # a second objective's length scale beside the first one's, by benchmarks/objectives.py
BEYOND = 0.1  # of the range of all values, by which the reference of the hypervolume is below the worst
LARGEST_MODEL = 256  # values that the process is fitted to; if there are more, a selection
NEIGHBOURS = 5  # the best trials, around which candidates are drawn
STEPS = (0.03, 0.1, 0.2)  # how far candidates are from them, as shares of a dimension
PER_STEP = 20
CHANGED = 0.6  # chance that a dimension of a neighbour is changed
BORDER, STRIP = 0.7, 0.1  # share of survivors at which half of the trials are expected to fail, and how steeply
DIMENSIONS_OF_LENGTH = 7  # the kernel's length scale suits this many dimensions; it grows with the cube's diagonal


@dataclass(frozen=True)
class MultiFidelityGP(SearchAlgorithm):
    """A Gaussian process on (configuration, epoch): try where the last epoch is expected to improve most.

    It learns from all epochs at which early stopping compares trials, so that a trial which was stopped or paused still
    says what a full one would reach. `startup_trials` come from a Sobol sequence first; then each suggestion has the
    greatest expected improvement of `candidates` random configurations and neighbours of the best ones. Running trials
    count with the value that they are expected to reach, so that suggestions for parallel trials spread. Failed trials
    count among the worst, and an improvement as much as it is probable that the trial doesn't fail. After Swersky et
    al. 2013, Klein et al. 2020 (MOBSTER), Gelbart et al. 2014 (failures).

    If the study has two objectives, it takes the greatest expected improvement of the hypervolume of their front (exact
    for two, Yang et al. 2019). The second one has a model of its own, unless it is known before a trial.
    """

    startup_trials: int = 4
    candidates: int = 300

    @property
    def takes_two_objectives(self) -> bool:
        """True: it looks for the greatest expected improvement of the front's hypervolume."""
        return True

    @property
    def expects_improvement(self) -> bool:
        """True: the algorithm has a model of the metric."""
        return True

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules for its linear algebra and its first points."""
        return ("scipy.linalg", "scipy.special", "threadpoolctl")

    def check(self, space: Space) -> None:
        """Raise StudyError for settings or domains that the process can't take."""
        check_model_based("MultiFidelityGP", space)
        for name, value, use in (("startup_trials", self.startup_trials, 4), ("candidates", self.candidates, 300)):
            if not is_count(value):
                raise StudyError(f"MultiFidelityGP.{name} needs {COUNT_RULE}, got {shown(value)}; use {use}")

    def build(self, problem: Problem) -> Searcher:
        """The searcher for one search."""
        return MultiFidelityGPSearcher(problem, startup=self.startup_trials, candidates=self.candidates)


@dataclass(frozen=True)
class _Ranked:
    """Candidates [n, dimensions] for a trial, best first, and the expected improvement."""

    key: tuple[int, int]
    candidates: Floats
    improvement: float


@dataclass(frozen=True)
class _Observed:
    """Values [n], scaled, of trials [n] after epochs [n]; `unit` is a scaled unit's size in the metric."""

    trials: npt.NDArray[np.int64]
    epochs: Floats
    values: Floats
    unit: float


class Told:
    """The data of each trial with a curve to which the process is fitted, in the trials' order."""

    def __init__(self, levels: tuple[int, ...]) -> None:
        self._levels = levels
        self._table = np.empty((3, 64))  # trials, epochs and values; as many columns as were ever needed, doubled
        self._count = 0
        self._best: dict[int, float] = {}
        self.ranked: list[tuple[float, int]] = []  # of all trials, the best first

    def change(self, trial: int, curve: dict[int, float], *, over: bool) -> None:
        """The trial's data have changed; without a curve it has none."""
        epochs = self._useful(sorted(curve), over)
        told = np.array([[trial] * len(epochs), epochs, [curve[epoch] for epoch in epochs]])
        first, end = np.searchsorted(self._table[0, : self._count], (trial, trial + 1))
        self._replace(int(first), int(end), told)
        self._rank(trial, max(curve.values(), default=None))

    def rows(self) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
        """Trials, epochs and values."""
        trials, epochs, values = self._table[:, : self._count].copy()
        return trials.astype(np.int64), epochs, values

    def _replace(self, first: int, end: int, columns: Floats) -> None:
        """Replace the columns from first to end by columns [3, n]; the later ones move."""
        after = first + columns.shape[1]
        count = self._count + after - end
        if count > self._table.shape[1]:
            self._table = np.hstack([self._table, np.empty_like(self._table)])
        self._table[:, after:count] = self._table[:, end : self._count]
        self._table[:, first:after] = columns
        self._count = count

    def _useful(self, reached: list[int], over: bool) -> list[int]:
        """The levels that it reached; a running trial's newest epoch beyond the last level counts, too."""
        told = [epoch for epoch in reached if epoch in self._levels]
        if reached and reached[-1] not in self._levels and (reached[-1] > self._levels[0] or over):
            told.append(reached[-1])
        return told

    def _rank(self, trial: int, best: float | None) -> None:
        if self._best.get(trial) != best:
            if trial in self._best:
                del self.ranked[bisect_left(self.ranked, (-self._best.pop(trial), trial))]
            if best is not None:
                self._best[trial] = best
                insort(self.ranked, (-best, trial))


class MultiFidelityGPSearcher(CurveSearcher):
    """Builds a new model for each suggestion, from all results until then."""

    def __init__(self, problem: Problem, *, startup: int, candidates: int) -> None:
        super().__init__(problem)
        self._startup, self._candidates = startup, candidates
        self._blind = SobolSearcher(problem.space, problem.seed)
        self._features = Features(problem.space)
        self._points = self._features.points(np.zeros((64, len(problem.space.dimensions))))  # of trial 0, 1, …
        self._ranked: _Ranked | None = None
        self._told_of = Told(self._levels)

    def adopt(self, number: int, config: Config) -> None:
        """A trial that runs from now on."""
        super().adopt(number, config)
        while number >= len(self._points):
            self._points = np.vstack([self._points, np.empty_like(self._points)])
        self._points[number] = self._features.points(self._units[number][None])

    def observe(self, number: int, epoch: int, value: float) -> None:
        """A point of the trial's curve. Raises ValueError for NaN and infinity."""
        super().observe(number, epoch, value)
        self._told_of.change(number, self._curves[number], over=number not in self._running)

    def end(self, number: int, status: EndStatus) -> None:
        """The trial is over; if it failed, its curve no longer counts."""
        super().end(number, status)
        self._told_of.change(number, self._curves.get(number, {}), over=True)

    def restart(self, number: int) -> None:
        """Its curve counts again."""
        super().restart(number)
        self._told_of.change(number, self._curves[number], over=False)

    def suggest(self, number: int, attempt: int = 0) -> Config | None:
        """The candidate with the greatest expected improvement; the next one for each further attempt."""
        if not self._space.dimensions:
            return self._space.decode([])
        if self._is_starting_up:
            return self._blind.suggest(number, attempt)
        candidates = self._rank_candidates(number).candidates
        return self._space.decode(candidates[attempt % len(candidates)])

    def expected_improvement(self, number: int) -> float | None:
        """The largest improvement that is expected of any candidate's configuration; None during start-up."""
        if self._is_starting_up or not self._space.dimensions:
            return None
        return self._rank_candidates(number).improvement

    def expect(self, units: Floats) -> Floats:
        """The expected values at the last epoch of configurations at units [n, dimensions], scaled: [n]."""
        with on_one_thread():
            return self._model(self._observations())[0].mean(self._places(units, self._problem.max_epochs))

    # Inside

    @property
    def _is_starting_up(self) -> bool:
        told = (1 for curve in self._curves.values() if curve)
        return sum(islice(told, self._startup)) < self._startup

    def _rank_candidates(self, number: int) -> _Ranked:
        """The candidates for a trial; ranked again only after new results."""
        key = (number, self._told)
        if self._ranked is None or self._ranked.key != key:
            with on_one_thread():
                self._ranked = _Ranked(key, *self._rank(number))
        return self._ranked

    def _rank(self, number: int) -> tuple[Floats, float]:
        """Candidates [n, dimensions], the most promising first, and the largest expected improvement of any.

        The order counts what a trial may gain by luck; the improvement doesn't: luck is no reason to go on.
        """
        from tuner.search.gaussian_process import expected_improvement

        if self._prices:
            return self._rank_by_hypervolume(number), math.inf
        observed = self._observations()
        model, trials = self._model(observed)
        last = self._rows(np.unique(trials), self._problem.max_epochs)
        best = float(model.mean(last).max())
        model = model.believing(self._pending(observed))
        candidates = self._space.snap(self._draw(np.random.default_rng([self._problem.seed, number, 1])))
        places = self._places(candidates, self._problem.max_epochs)
        mean, deviation = model.predict(places)
        survival = self._survival(last, places)
        order = np.argsort(-survival * expected_improvement(mean, deviation, best), kind="stable")
        lasting = survival * expected_improvement(mean, model.without_own(deviation), best)
        return allowed(self._space, candidates[order]), observed.unit * float(lasting.max())

    def _rank_by_hypervolume(self, number: int) -> Floats:
        """Candidates [n, dimensions], the greatest expected improvement of the hypervolume first."""
        from tuner.search.gaussian_process import CurveProcess

        observed = self._observations(LOWEST)
        model, trials = self._model(observed)
        priced = np.array(sorted(set(map(int, trials)) & {*self._prices}), dtype=np.int64)
        last = self._rows(np.unique(trials), self._problem.max_epochs)
        values = model.mean(self._rows(priced, self._problem.max_epochs))
        prices, unit = scale(np.array([self._prices[trial] for trial in priced]), LOWEST)
        middle = float(np.median([self._prices[trial] for trial in priced]))
        model = model.believing(self._pending(observed))
        candidates = self._space.snap(self._draw(np.random.default_rng([self._problem.seed, number, 1])))
        places = self._places(candidates, self._problem.max_epochs)
        known = self._known_prices(candidates)
        if known is None:
            kernel = kernel_for(self._space)
            kernel = replace(kernel, length=SMOOTHER * kernel.length)
            priced_model = CurveProcess(kernel, self._rows(priced, self._problem.max_epochs), prices)
            mean, deviation = priced_model.predict(places)
            second = mean, model.without_own(deviation)
        else:
            second = (known - middle) / unit, np.zeros(len(known))
        mean, deviation = model.predict(places)
        first = mean, model.without_own(deviation)
        gain = expected_hypervolume(np.stack([values, prices], axis=1), first, second)
        return allowed(self._space, candidates[np.argsort(-self._survival(last, places) * gain, kind="stable")])

    def _known_prices(self, candidates: Floats) -> Floats | None:
        """The second objective of candidates [n], if it is known of all of them."""
        if self._problem.price_of is None:
            return None
        found = [self._problem.price_of(self._space.decode(candidate)) for candidate in candidates]
        worst = min((price for price in found if price is not None), default=None)
        return None if worst is None else np.array([worst if price is None else price for price in found])

    def _survival(self, trials: Rows, places: Rows) -> Floats:
        """The probability that a trial at places [n] does not fail: [n], by a process of survival (0 failed, 1 not)."""
        if not self._failed:
            return np.ones(len(places))
        from scipy.special import ndtr

        from tuner.search.gaussian_process import CurveProcess

        survived = np.array([float(trial not in self._failed) for trial in trials.trials])
        expected = CurveProcess(kernel_for(self._space), trials, survived).mean(places)
        return np.asarray(ndtr((expected - BORDER) / STRIP))

    def _model(self, observed: _Observed) -> tuple[CurveProcess, npt.NDArray[np.int64]]:
        """The process, and the trials that it was fitted to."""
        from tuner.search.gaussian_process import CurveProcess

        kept = self._selection(observed)
        trials = observed.trials[kept]
        return CurveProcess(
            kernel_for(self._space), self._rows(trials, observed.epochs[kept]), observed.values[kept]
        ), trials

    def _observations(self, floor: float = FLOOR) -> _Observed:
        """One value for each level that a trial reached. A failed trial counts as the worst at every level."""
        trials, epochs, values = self._told_of.rows()
        if not len(values):  # no trial has reached the first level yet
            trials, epochs, values = self._newest()
        scaled, unit = scale(values, floor)
        failed = np.repeat(np.array(sorted(self._failed), dtype=np.int64), len(self._levels))
        return _Observed(
            np.append(trials, failed),
            np.append(epochs, np.tile(self._levels, len(self._failed))),
            np.append(scaled, np.full(len(failed), scaled.min())),
            unit,
        )

    def _newest(self) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
        """The newest value of each trial: trials, epochs and values."""
        newest = {trial: max(curve) for trial, curve in self._curves.items() if curve}
        values = [self._curves[trial][epoch] for trial, epoch in newest.items()]
        return np.array(list(newest), dtype=np.int64), np.array(list(newest.values()), dtype=float), np.array(values)

    def _pending(self, observed: _Observed) -> Rows:
        """Trials that run and have reported nothing useful yet: they will reach the first level."""
        unknown = [trial for trial in sorted(self._running) if not (observed.trials == trial).any()]
        return self._rows(unknown, self._levels[0])

    def _selection(self, observed: _Observed) -> npt.NDArray[np.int64]:
        """All values if there are few trials; otherwise those of the farthest and best ones, and as many evenly chosen
        others.
        """
        count = len(observed.values)
        if count <= LARGEST_MODEL:
            return np.arange(count)
        first = _farthest_and_best(observed, LARGEST_MODEL // 2)
        others = np.ones(count, dtype=bool)
        others[first] = False
        spread = np.random.default_rng([self._problem.seed, count]).choice(
            np.flatnonzero(others), LARGEST_MODEL - len(first), replace=False
        )
        return np.sort(np.append(first, spread))

    def _draw(self, generator: np.random.Generator) -> Floats:
        """Random points of the unit cube, and points near those of the best trials: [n, dimensions]."""
        width = len(self._space.dimensions)
        drawn = [generator.random((self._candidates, width))]
        for trial in self._leaders():
            unit = self._units[trial]
            absent = np.isnan(unit)
            for step in STEPS:
                moved = generator.standard_normal((PER_STEP, width)) * step
                changed = generator.random((PER_STEP, width)) < CHANGED
                anywhere = generator.random((PER_STEP, width))
                drawn.append(np.where(absent, anywhere, np.clip(unit + moved * changed, 0, 1)))
        return np.vstack(drawn)

    def _leaders(self) -> list[int]:
        """The best trials so far: with two objectives those of the front, spread over it."""
        if not self._prices:
            return [trial for _, trial in self._told_of.ranked[:NEIGHBOURS]]
        best = {trial: -value for value, trial in self._told_of.ranked}
        return self._by_both(best, self._prices)[:NEIGHBOURS]

    def _rows(self, trials: Any, epochs: Any) -> Rows:
        """Rows of trials, each at its own epoch or all at the same."""
        from tuner.search.gaussian_process import Rows

        numbers = np.asarray(trials, dtype=np.int64)
        relative = np.log(np.broadcast_to(np.asarray(epochs, dtype=float), len(numbers)))
        return Rows(self._points[numbers], relative / math.log(max(self._problem.max_epochs, 2)), numbers)

    def _places(self, units: Floats, epoch: int) -> Rows:
        """Rows of trials that don't exist yet."""
        from tuner.search.gaussian_process import Rows

        relative = math.log(epoch) / math.log(max(self._problem.max_epochs, 2))
        return Rows(
            self._features.points(units), np.full(len(units), relative), np.full(len(units), -1, dtype=np.int64)
        )


def kernel_for(space: Space) -> CurveKernel:
    """The kernel with a length scale that suits the number of dimensions."""
    from tuner.search.gaussian_process import CurveKernel

    length = math.sqrt(len(space.dimensions) / DIMENSIONS_OF_LENGTH)
    return replace(CurveKernel(), length=CurveKernel.length * length)


def _farthest_and_best(observed: _Observed, count: int) -> npt.NDArray[np.int64]:
    """At most `count` of the values: late epochs first, and within an epoch the best; without sorting all."""
    edge = np.partition(observed.epochs, -count)[-count]
    beyond = np.flatnonzero(observed.epochs > edge)
    there = np.flatnonzero(observed.epochs == edge)
    wanted = count - len(beyond)
    best = np.argpartition(-observed.values[there], wanted - 1)[:wanted]
    return np.append(beyond, there[best])


def expected_hypervolume(points: Floats, first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> Floats:
    """By how much the area that points dominate grows with each candidate, on average: [n] (Yang et al. 2019).

    The area ends at a reference a tenth of the points' range below the worst of them. Objectives are independent.

    Args:
        points: [m, 2], of which higher values are better
        first: means and deviations [n] of the candidates' first objective
        second: of the second; deviations of 0 say that it is known
    """
    best = points[fronts(points) == 0]
    best = best[np.argsort(-best[:, 1])]
    reference = points.min(0) - BEYOND * np.maximum(np.ptp(points, axis=0), 1e-3)
    edges = np.append(best[:, 1], reference[1])  # of strips, in falling order; the first one has no upper edge
    levels = np.append(reference[0], best[:, 0])
    reach = np.stack([_mean_excess(*second, float(edge)) for edge in edges])
    widths = np.diff(reach, axis=0, prepend=np.zeros((1, reach.shape[1])))
    heights = np.stack([_mean_excess(*first, float(level)) for level in levels])
    return np.asarray((widths * heights).sum(0))


def _mean_excess(mean: Floats, deviation: Floats, level: float) -> Floats:
    """By how much values exceed a level on average: [n]."""
    from tuner.search.gaussian_process import expected_improvement

    known = deviation == 0
    return np.where(
        known, np.maximum(mean - level, 0.0), expected_improvement(mean, np.where(known, 1.0, deviation), level)
    )


def scale(values: Floats, floor: float = FLOOR) -> tuple[Floats, float]:
    """Values [n], higher is better, scaled: their median at 0, the good ones spread over a few units; and the unit.

    All below a little above the median are lifted to it (`floor`): how bad a bad configuration is says nothing about
    where the best lie, and a few that diverged would flatten everything else.
    """
    lower, middle, upper = np.percentile(values, [25, 50, 75])
    unit = float(max((upper - lower) / 1.35, 0.25 * (values.max() - middle), 1e-6 * max(1.0, abs(middle)), 1e-12))
    return np.asarray(np.maximum((values - middle) / unit, floor)), unit
