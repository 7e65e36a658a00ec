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

if TYPE_CHECKING:
    from tuner.search.gaussian_process import CurveKernel, CurveProcess, Rows

FLOOR = 0.2  # robust standard deviations above the median, below which all values count the same
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
    """

    startup_trials: int = 4
    candidates: int = 300

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

    def _observations(self) -> _Observed:
        """One value for each level that a trial reached. A failed trial counts as the worst at every level."""
        trials, epochs, values = self._told_of.rows()
        if not len(values):  # no trial has reached the first level yet
            trials, epochs, values = self._newest()
        scaled, unit = scale(values)
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
        for _, trial in self._told_of.ranked[:NEIGHBOURS]:
            unit = self._units[trial]
            absent = np.isnan(unit)
            for step in STEPS:
                moved = generator.standard_normal((PER_STEP, width)) * step
                changed = generator.random((PER_STEP, width)) < CHANGED
                anywhere = generator.random((PER_STEP, width))
                drawn.append(np.where(absent, anywhere, np.clip(unit + moved * changed, 0, 1)))
        return np.vstack(drawn)

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


def scale(values: Floats) -> tuple[Floats, float]:
    """Values [n], higher is better, scaled: their median at 0, the good ones spread over a few units; and the unit.

    All below a little above the median are lifted to it: how bad a bad configuration is says nothing about where the
    best lie, and a few that diverged would flatten everything else.
    """
    lower, middle, upper = np.percentile(values, [25, 50, 75])
    unit = float(max((upper - lower) / 1.35, 0.25 * (values.max() - middle), 1e-6 * max(1.0, abs(middle)), 1e-12))
    return np.asarray(np.maximum((values - middle) / unit, FLOOR)), unit
