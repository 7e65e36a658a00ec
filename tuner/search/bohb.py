"""BOHB's search: kernel densities of the good and the bad configurations, for each fidelity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.errors import StudyError, shown
from tuner.search.base import COUNT_RULE, Floats, Problem, SearchAlgorithm, Searcher, check_model_based, is_count
from tuner.search.observations import CurveSearcher, allowed
from tuner.search.random import RandomSearcher
from tuner.space import Config, Space
from tuner.space.values import is_number


@dataclass(frozen=True)
class BOHB(SearchAlgorithm):
    """Kernel densities of good and bad configurations at an epoch: the model of BOHB (Falkner et al. 2018).

    Of the trials at the highest epoch that enough have reached, the best `good_share` and the rest get a kernel density
    each; the suggestion is the one of `candidates`, drawn from the good ones' density widened `bandwidth_factor` times,
    that is likeliest among the good relative to the bad. A `random_share` of the suggestions is drawn from the space;
    all of them are until some epoch has two trials more than the model needs, which is `min_points` good and as many
    other ones (by default the number of dimensions plus one).

    BOHB (Robust and Efficient Hyperparameter Optimization at Scale) is this with `scheduler=HyperBand()`; it works with
    `ASHA()` as well, where it reached less regret.
    """

    min_points: int | None = None
    good_share: float = 0.15
    candidates: int = 64
    random_share: float = 1 / 3
    bandwidth_factor: float = 3.0

    @property
    def takes_two_objectives(self) -> bool:
        """True: good configurations are the first by `tuner.space.pareto.order`."""
        return True

    @property
    def needs(self) -> tuple[str, ...]:
        """The module that its densities need."""
        return ("scipy.special",)

    def check(self, space: Space) -> None:
        """Raise StudyError for settings or domains that the model can't take."""
        check_model_based("BOHB", space)
        if self.min_points is not None and not is_count(self.min_points):
            raise StudyError(f"BOHB.min_points needs {COUNT_RULE}, got {shown(self.min_points)}; use 5")
        if not is_count(self.candidates):
            raise StudyError(f"BOHB.candidates needs {COUNT_RULE}, got {shown(self.candidates)}; use 64")
        for name, share, use in (("good_share", self.good_share, 0.15), ("random_share", self.random_share, 1 / 3)):
            if not is_number(share) or not 0 <= share <= 1:
                raise StudyError(f"BOHB.{name} needs a share from 0 to 1, got {shown(share)}; use {use:.2g}")
        factor = self.bandwidth_factor
        if not is_number(factor) or factor <= 0:
            raise StudyError(f"BOHB.bandwidth_factor needs a number above 0, got {shown(factor)}; use 3")

    def build(self, problem: Problem) -> Searcher:
        """The searcher for one search."""
        return BOHBSearcher(problem, self)


class BOHBSearcher(CurveSearcher):
    """Builds new densities for each suggestion."""

    def __init__(self, problem: Problem, settings: BOHB) -> None:
        super().__init__(problem)
        self._settings = settings
        self._blind = RandomSearcher(problem.space, problem.seed)
        self._least = settings.min_points or len(problem.space.dimensions) + 1

    def suggest(self, number: int, attempt: int = 0) -> Config | None:
        """A draw from the space, or the best candidate; another attempt draws other candidates."""
        generator = np.random.default_rng([self._problem.seed, number, attempt, 1])
        level = self._level()
        if level is None or not self._space.dimensions or generator.random() < self._settings.random_share:
            return self._blind.suggest(number, attempt)
        return self._space.decode(self._best_candidate(level, generator))

    # Inside

    def _level(self) -> int | None:
        """The highest epoch with enough trials to separate good from bad; None if there is none."""
        return next((level for level in reversed(self._levels) if self._is_enough(self._ranked(level))), None)

    def _is_enough(self, ranked: list[int]) -> bool:
        """Whether good and bad can be separated; failed trials are among the bad only."""
        return len(ranked) >= self._least + 2 and len(ranked) - len(self._failed) >= self._least

    def _ranked(self, level: int) -> list[int]:
        """The trials that reached the epoch, best first, and then those that failed."""
        reached = [trial for trial, curve in self._curves.items() if level in curve]
        if self._prices:
            prices = {trial: told[level] for trial, told in self._prices_at.items() if level in told}
            ranked = self._by_both({trial: self._curves[trial][level] for trial in sorted(reached)}, prices)
        else:
            ranked = sorted(reached, key=lambda trial: (-self._curves[trial][level], trial))
        return ranked + sorted(self._failed)

    def _best_candidate(self, level: int, generator: np.random.Generator) -> Floats:
        from tuner.search.kernel_density import KernelDensity

        ranked = self._ranked(level)
        survivors = len(ranked) - len(self._failed)
        good = min(survivors, max(self._least, int(self._settings.good_share * len(ranked))))
        bad = max(self._least, len(ranked) - good)
        units = np.array([self._units[trial] for trial in ranked])
        likely = KernelDensity(self._space, units[:good], generator)
        unlikely = KernelDensity(self._space, units[-bad:], generator)
        drawn = likely.sample(self._settings.candidates, generator, widened=self._settings.bandwidth_factor)
        candidates = self._space.snap(drawn)
        order = np.argsort(unlikely(candidates) - likely(candidates), kind="stable")
        return np.asarray(allowed(self._space, candidates[order])[0])
