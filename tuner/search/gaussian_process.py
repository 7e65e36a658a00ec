"""A Gaussian process over learning curves: the expected value of a configuration at any epoch, and its uncertainty."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtr

from tuner.search.base import Floats

Integers = npt.NDArray[np.int64]


def matern(one: Floats, other: Floats, length: float = 1.0) -> Floats:
    """Matérn 5/2 between points [n, columns] and [m, columns]: [n, m]; in place, as memory access is the slow part."""
    scaled: Floats = one @ other.T
    scaled *= -2
    scaled += (one**2).sum(1)[:, None]
    scaled += (other**2).sum(1)
    np.maximum(scaled, 0, out=scaled)
    scaled *= 5 / length**2
    np.sqrt(scaled, out=scaled)
    polynomial: Floats = scaled * (1 / 3)
    polynomial += 1
    polynomial *= scaled
    polynomial += 1
    np.negative(scaled, out=scaled)
    np.exp(scaled, out=scaled)
    scaled *= polynomial
    return scaled


@dataclass(frozen=True)
class CurveKernel:
    """Covariance of two values, each of a configuration x after an epoch e of a trial t.

    k = m(x, x')·(shared + shared_late·r(e, e')) + epochs·r(e, e') + [t = t']·(own + own_late·r(e, e')), where m is
    Matérn 5/2 and r a squared exponential in the relative logarithm of the epoch (0 the first, 1 the last): what is
    common to all epochs of similar configurations, what changes between early and late, what all trials gain by
    training, and what only one trial has. The hyperparameters are not learned: on curves of neural networks those below
    did better than maximum-likelihood ones, which a few dozen short curves don't determine (see benchmarks/search.py).
    """

    length: float = 1.0
    length_epochs: float = 0.7
    shared: float = 0.7
    shared_late: float = 0.2
    epochs: float = 0.5
    own: float = 0.02
    own_late: float = 0.05
    noise: float = 0.003

    @property
    def variance(self) -> float:
        """Prior variance of any value."""
        return self.shared + self.shared_late + self.epochs + self.own + self.own_late

    def __call__(self, one: Rows, other: Rows) -> Floats:
        """Covariances [len(one), len(other)]."""
        found = matern(one.points, other.points, self.length)
        epochs, first = np.unique(one.epochs, return_inverse=True)
        other_epochs, second = np.unique(other.epochs, return_inverse=True)
        between = np.exp(-0.5 * ((epochs[:, None] - other_epochs) / self.length_epochs) ** 2)  # distinct epochs are few
        rows = first if len(epochs) > 1 else slice(None)  # a single epoch's row counts for all
        found *= (self.shared + self.shared_late * between)[:, second][rows]
        found += (self.epochs * between)[:, second][rows]
        if (one.trials < 0).all():
            return found
        same, others = np.nonzero(one.trials[:, None] == other.trials)
        found[same, others] += (self.own + self.own_late * between)[first[same], second[others]]
        return found


@dataclass(frozen=True)
class Rows:
    """Values' places: points [n, columns], epochs [n] as relative logarithms, trials [n] (-1: one not yet started)."""

    points: Floats
    epochs: Floats
    trials: Integers

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.trials)

    def take(self, kept: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Rows:
        """The rows to keep."""
        return Rows(self.points[kept], self.epochs[kept], self.trials[kept])

    def __add__(self, other: Rows) -> Rows:
        """These rows, then the others."""
        return Rows(
            np.vstack([self.points, other.points]),
            np.append(self.epochs, other.epochs),
            np.append(self.trials, other.trials),
        )


class CurveProcess:
    """The process given `values` [n] at `rows`; its mean is a constant, estimated by generalised least squares.

    Cost: n³/3 operations to build, n² for each prediction and for each row given to `believing`.
    """

    def __init__(self, kernel: CurveKernel, rows: Rows, values: Floats) -> None:
        self._kernel, self._rows = kernel, rows
        self._factor = np.linalg.cholesky(self._noisy(rows))
        solved = cho_solve((self._factor, True), np.stack([np.ones(len(rows)), values], axis=1), check_finite=False)
        self._mean = float(solved[:, 1].sum() / solved[:, 0].sum())
        self._weights = solved[:, 1] - self._mean * solved[:, 0]

    def mean(self, rows: Rows) -> Floats:
        """Expected values [len(rows)]."""
        return np.asarray(self._mean + self._kernel(rows, self._rows) @ self._weights)

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Expected values and standard deviations, each [len(rows)], of the values without noise."""
        covariance = self._kernel(rows, self._rows)
        explained = solve_triangular(self._factor, covariance.T, lower=True, check_finite=False)
        variance = self._kernel.variance - (explained**2).sum(axis=0)
        return self._mean + covariance @ self._weights, np.sqrt(np.maximum(variance, 1e-10))

    def draw(self, rows: Rows, count: int, generator: np.random.Generator) -> Floats:
        """Samples of the values without noise, each of all rows jointly: [count, len(rows)]."""
        covariance = self._kernel(rows, self._rows)
        explained = solve_triangular(self._factor, covariance.T, lower=True, check_finite=False)
        left = self._kernel(rows, rows) - explained.T @ explained
        left[np.diag_indices(len(rows))] += 1e-6
        mean = self._mean + covariance @ self._weights
        return np.asarray(mean + generator.standard_normal((count, len(rows))) @ np.linalg.cholesky(left).T)

    def without_own(self, deviation: Floats) -> Floats:
        """Standard deviations [n] of new trials' values, without what differs between trials of one configuration."""
        own = self._kernel.own + self._kernel.own_late
        return np.sqrt(np.maximum(deviation**2 - own, 1e-10))

    def believing(self, rows: Rows) -> CurveProcess:
        """The process given its own expectations at further rows, as for running trials (Ginsbourger et al. 2010).

        The expectations stay exactly the same and only the uncertainty becomes smaller, so only the Cholesky factor
        grows, by a block.
        """
        if not len(rows):
            return self
        believing = copy(self)
        believing._rows = self._rows + rows
        believing._factor = self._extended(rows)
        believing._weights = np.append(self._weights, np.zeros(len(rows)))
        return believing

    def _extended(self, rows: Rows) -> Floats:
        """The Cholesky factor [[L, 0], [B, C]] with further rows: B = K·L⁻ᵀ; C is that of what B leaves."""
        below = solve_triangular(self._factor, self._kernel(self._rows, rows), lower=True, check_finite=False).T
        corner = np.linalg.cholesky(self._noisy(rows) - below @ below.T)
        return np.block([[self._factor, np.zeros(below.T.shape)], [below, corner]])

    def _noisy(self, rows: Rows) -> Floats:
        """Covariances [n, n] of values that were measured."""
        covariance = self._kernel(rows, rows)
        covariance[np.diag_indices(len(rows))] += self._kernel.noise + 1e-8
        return covariance


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """By how much a normal variable exceeds `best`, at least 0, on average (Jones et al. 1998): [n]."""
    gain = mean - best
    standard = gain / deviation
    density = np.exp(-0.5 * standard**2) / math.sqrt(2 * math.pi)
    return np.asarray(gain * ndtr(standard) + deviation * density)
