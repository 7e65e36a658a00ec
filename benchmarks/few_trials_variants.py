"""Changes of the default search that were tried for searches of few trials, each by itself and some together.

None of them held on the tasks for the check: see "What a search of ten or twenty trials finds" in measured.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner import MultiFidelityGP
from tuner.search import Problem, Searcher
from tuner.search import multi_fidelity as default
from tuner.search.base import Floats
from tuner.search.gaussian_process import CurveKernel, CurveProcess, Rows, expected_improvement
from tuner.search.points import Features, unordered_options


@dataclass(frozen=True)
class Variant(MultiFidelityGP):
    """The default with changes.

    Attributes:
        reflect: steps from good trials that would leave the cube turn back at its limits, instead of ending there
        quasi: random candidates are a Sobol sequence
        deep: by how many units FLOOR is lower at the first trial; it fades
        warp: share of a smooth step in how far two values of a number are apart: less near limits, more in the middle
        bend: by how much the mean, before anything is known, is lower at the farthest corner than in the middle
        fading: the bend fades with the number of trials, as `deep` does
        beginning: trials over which they fade
        trend: variance of a linear and a quadratic trend in each number
        lengths: expected improvement is averaged over kernels whose length is this many times the usual one
        noise: of the kernel
        every: this often a suggestion is the next of the Sobol sequence
    """

    reflect: bool = False
    quasi: bool = False
    deep: float = 0.0
    warp: float = 0.0
    bend: float = 0.0
    fading: bool = False
    beginning: int = 40
    trend: float = 0.0
    lengths: tuple[float, ...] = (1.0,)
    noise: float = CurveKernel.noise
    every: int = 0

    def build(self, problem: Problem) -> Searcher:
        """The searcher for one search."""
        return VariantSearcher(self, problem)


class VariantSearcher(default.MultiFidelityGPSearcher):
    """See `Variant`."""

    def __init__(self, variant: Variant, problem: Problem) -> None:
        super().__init__(problem, startup=variant.startup_trials, candidates=variant.candidates)
        self._variant = variant
        self._features = Warped(problem.space, variant.warp)
        self._points = self._features.points(np.zeros((64, len(problem.space.dimensions))))

    def suggest(self, number: int, attempt: int = 0) -> dict[str, Any] | None:
        """Now and then the next of the Sobol sequence."""
        if self._variant.every and number % self._variant.every == self._variant.every - 1:
            return self._blind.suggest(number, attempt)
        return super().suggest(number, attempt)

    def _rank(self, number: int) -> tuple[Floats, float]:
        variant, observed = self._variant, self._observations()
        bend = variant.bend * (self._beginning if variant.fading else 1)
        kept = self._selection(observed)
        trials = observed.trials[kept]
        rows = self._rows(trials, observed.epochs[kept])
        last = self._rows(np.unique(trials), self._problem.max_epochs)
        pending = self._pending(observed)
        candidates = self._space.snap(self._draw(np.random.default_rng([self._problem.seed, number, 1])))
        places = self._places(candidates, self._problem.max_epochs)
        gain = np.zeros(len(candidates))
        lasting = np.zeros(len(candidates))
        kernel = default.kernel_for(self._space)
        for length in variant.lengths:
            one = replace(kernel, length=kernel.length * length, noise=variant.noise)
            if variant.trend:
                one = Trending(**vars(one), trend=variant.trend, numbers=self._features.numbers)
            model = Bent(one, rows, observed.values[kept], bend, self._features.numbers)
            best = float(model.mean(last).max())
            believing = model.believing(pending)
            mean, deviation = believing.predict(places)
            gain += expected_improvement(mean, deviation, best)
            lasting += expected_improvement(mean, model.without_own(deviation), best)
        order = np.argsort(-gain, kind="stable")
        return default.allowed(self._space, candidates[order]), observed.unit * float(lasting.max()) / len(
            variant.lengths
        )

    @property
    def _beginning(self) -> float:
        """1 before the first trial, 0 where it is over."""
        return max(0.0, 1 - len(self._curves) / self._variant.beginning)

    def _observations(self) -> default._Observed:
        found = super()._observations()
        if not self._variant.deep:
            return found
        values = self._told_of.rows()[2]
        if not len(values):
            values = self._newest()[2]
        floor = default.FLOOR - self._variant.deep * self._beginning
        scaled = np.maximum((values - np.percentile(values, 50)) / found.unit, floor)
        failed = np.full(len(found.values) - len(values), scaled.min())
        return replace(found, values=np.append(scaled, failed))

    def _draw(self, generator: np.random.Generator) -> Floats:
        width = len(self._space.dimensions)
        drawn = [self._anywhere(generator, width)]
        known = (trial for _, trial in self._told_of.ranked if trial not in self._failed)
        for trial in islice(known, default.NEIGHBOURS):
            unit = self._units[trial]
            absent = np.isnan(unit)
            for step in default.STEPS:
                moved = generator.standard_normal((default.PER_STEP, width)) * step
                changed = generator.random((default.PER_STEP, width)) < default.CHANGED
                anywhere = generator.random((default.PER_STEP, width))
                there = unit + moved * changed
                inside = reflected(there) if self._variant.reflect else np.clip(there, 0, 1)
                drawn.append(np.where(absent, anywhere, inside))
        return np.vstack(drawn)

    def _anywhere(self, generator: np.random.Generator, width: int) -> Floats:
        if not self._variant.quasi:
            return generator.random((self._candidates, width))
        from scipy.stats.qmc import Sobol

        return np.asarray(Sobol(width, scramble=True, rng=generator).random(512)[: self._candidates])


def reflected(there: Floats) -> Floats:
    """Places on a line, turned back at 0 and 1."""
    folded = np.mod(there, 2)
    return np.asarray(np.minimum(folded, 2 - folded))


class Warped(Features):
    """Points whose numbers lie closer together near limits."""

    def __init__(self, space: Any, share: float) -> None:
        super().__init__(space)
        self._share = share
        options = unordered_options(space)
        self.numbers = np.repeat(np.array(options) == 1, options)

    def points(self, rows: Floats) -> Floats:
        """As Features has them, then warped."""
        found = super().points(rows)
        if self._share:
            inner = found[:, self.numbers]
            found[:, self.numbers] = inner + self._share * (3 * inner**2 - 2 * inner**3 - inner)
        return found


class Bent(CurveProcess):
    """A process whose mean is `bend` lower in a corner than in the middle; with a kernel's trends in each number."""

    def __init__(
        self, kernel: CurveKernel, rows: Rows, values: Floats, bend: float, numbers: npt.NDArray[np.bool_]
    ) -> None:
        self._bend, self._numbers = bend, numbers
        super().__init__(kernel, rows, values - self._prior(rows))

    def _prior(self, rows: Rows) -> Floats | float:
        if not self._bend or not self._numbers.any():
            return 0.0
        return np.asarray(-self._bend * ((2 * rows.points[:, self._numbers] - 1) ** 2).mean(axis=1))

    def mean(self, rows: Rows) -> Floats:
        """Expected values [len(rows)]."""
        return np.asarray(super().mean(rows) + self._prior(rows))

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Expected values and standard deviations."""
        mean, deviation = super().predict(rows)
        if isinstance(self._kernel, Trending):
            own = (self._kernel.parts(rows) ** 2).sum(axis=1)
            deviation = np.sqrt(np.maximum(deviation**2 + own, 1e-10))
        return mean + self._prior(rows), deviation


@dataclass(frozen=True)
class Trending(CurveKernel):
    """With a linear and a quadratic function of each number, whose factors are normal."""

    trend: float = 0.0
    numbers: Any = None

    def parts(self, rows: Rows) -> Floats:
        """Whose products are the covariance."""
        away = 2 * rows.points[:, self.numbers] - 1
        return np.asarray(np.hstack([away, away**2 - 1 / 3]) * np.sqrt(self.trend / max(away.shape[1], 1)))

    def __call__(self, one: Rows, other: Rows) -> Floats:
        """Covariances [len(one), len(other)]."""
        return np.asarray(super().__call__(one, other) + self.parts(one) @ self.parts(other).T)


VARIANTS = {
    "1 reflect": Variant(reflect=True),
    "2 reflect + quasi-random": Variant(reflect=True, quasi=True),
    "3 deep floor": Variant(deep=1.5),
    "4 warp": Variant(warp=1.0),
    "5 bent mean": Variant(bend=1.5),
    "6 trends": Variant(trend=0.5),
    "7 deep floor + bent 0.75": Variant(deep=1.5, bend=0.75, fading=True),
    "8 deep floor + bent 1.5": Variant(deep=1.5, bend=1.5, fading=True),
    "9 the same as 7 over 20": Variant(deep=1.5, bend=0.75, fading=True, beginning=20),
    "10 bent 0.75 over 20": Variant(bend=0.75, fading=True, beginning=20),
}
