"""The probability that each hyperparameter is the most important one, given the trials.

Trees only reproduce the trials; they don't show how uncertain regions are where the search has no trials. A Gaussian
process does: its effects vary from draw to draw there, so that no hyperparameter leads in most draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.machine.one_thread import on_one_thread

Floats = npt.NDArray[np.float64]
MOST_TRIALS = 100  # to which the process is fitted; of more a random sample
CHAINS, STEPS = 48, 10  # of the kernel's settings, each with another draw of the values
DRAWS = 4  # draws of the effects from each chain
PLACES = 10  # along a dimension of numbers
LENGTH_SPREAD = 1.0  # prior of the length's logarithm: most lengths are 0.4 to 2.7 cube edges
NOISE, NOISE_SPREAD = math.log(0.01), 1.5  # prior of the noise's logarithm, as a share of the variance
MEAN_VARIANCE = 4.0  # prior variance of the values' mean, in units of their variance
WEIGHT = 2.0  # weight in trials of the prior variance, which is 1 for standardised values
MATERN, EXPONENTIAL = False, True


@on_one_thread()
def chances_to_lead(units: Floats, options: list[int], draws: Floats, seed: int = 0) -> Floats:
    """For each dimension the probability that its main effect has the largest variance: [dimensions], sum 1.

    Args:
        units: points of the trials in the unit cube [n, dimensions], without nan
        options: for each dimension the number of its options that have no order; 1 for a dimension of numbers
        draws: possible values [draws, n], a chain takes one of them
        seed: of all random numbers

    The process has a product of Matérn 5/2 kernels, one for each dimension with its own length (of options without
    an order: an exponential of whether they differ). Lengths and noise are drawn by Metropolis' rule in some short
    chains, effects jointly from the process, averaged over all other dimensions (functional analysis of variance, as by
    Oakley and O'Hagan 2004, Probabilistic sensitivity analysis of complex models).
    """
    generator = np.random.default_rng(seed)
    kept = generator.permutation(len(units))[:MOST_TRIALS]
    values = draws[np.arange(CHAINS) % len(draws)][:, kept]
    values = values - values.mean(axis=1, keepdims=True)
    values /= np.maximum(values.std(axis=1, keepdims=True), 1e-12)
    places = [
        (np.arange(PLACES if count == 1 else count) + 0.5) / (PLACES if count == 1 else count) for count in options
    ]
    points = np.stack(
        [
            column if count == 1 else _middle(column, count)
            for column, count in zip(units[kept].T, options, strict=True)
        ],
        1,
    )
    kinds = [MATERN if count == 1 else EXPONENTIAL for count in options]
    chains = _settled(points, kinds, values, generator)
    effects = _effects(chains, points, kinds, places, generator)
    leaders = np.concatenate([effect.var(axis=2).reshape(1, -1) for effect in effects]).argmax(axis=0)
    return np.bincount(leaders, minlength=len(options)) / len(leaders)


@dataclass
class _Chains:
    """Settings of the kernel [chains, dimensions + 1], logarithms of lengths and noise, and what follows from them.

    `factors` are the Cholesky factors of the covariances [chains, n, n], `solved` the values by them [chains, n], and
    `likelihoods` the logarithms of the posterior densities [chains].
    """

    settings: Floats
    factors: Floats
    solved: Floats
    likelihoods: Floats

    @property
    def lengths(self) -> Floats:
        """The lengths [chains, dimensions]."""
        return np.exp(self.settings[:, :-1])

    @property
    def variances(self) -> tuple[Floats, float]:
        """The process's variance, as an inverse gamma: twice its scale [chains], and its degrees of freedom."""
        return np.asarray((self.solved**2).sum(axis=1) + WEIGHT), self.solved.shape[1] + WEIGHT

    def take(self, better: npt.NDArray[np.bool_], other: _Chains) -> None:
        """The other's settings in accepted chains."""
        for name, mine in vars(self).items():
            mine[better] = vars(other)[name][better]


def _middle(column: Floats, count: int) -> Floats:
    """The middles of the options in which these places are."""
    return np.asarray((np.floor(np.minimum(column, 1 - 1e-9) * count) + 0.5) / count)


def _settled(points: Floats, kinds: list[bool], values: Floats, generator: np.random.Generator) -> _Chains:
    """The chains after their steps, each of which changes some of the settings."""
    width = points.shape[1] + 1
    spread = np.append(np.full(width - 1, LENGTH_SPREAD), NOISE_SPREAD)
    middle = np.append(np.zeros(width - 1), NOISE)
    now = _fitted(middle + spread * generator.standard_normal((CHAINS, width)), points, kinds, values)
    for _ in range(STEPS):
        changed = generator.random((CHAINS, width)) < max(0.3, 1 / width)
        step = generator.choice([0.3, 1.0], size=(CHAINS, 1)) * spread * generator.standard_normal((CHAINS, width))
        then = _fitted(now.settings + changed * step, points, kinds, values)
        now.take(np.log(generator.random(CHAINS)) < then.likelihoods - now.likelihoods, then)
    return now


def _fitted(settings: Floats, points: Floats, kinds: list[bool], values: Floats) -> _Chains:
    """The process with these settings, given values [chains, n]; its variance and mean are integrated out."""
    lengths, noise = np.exp(settings[:, :-1]), np.exp(settings[:, -1])
    covariance = np.ones((len(settings), len(points), len(points)))
    for column, length, kind in zip(points.T, lengths.T, kinds, strict=True):
        covariance *= _kernel(column, column, length, kind)
    covariance += MEAN_VARIANCE + (noise + 1e-6)[:, None, None] * np.eye(len(points))
    factors = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    solved = np.asarray(np.linalg.solve(factors, values[:, :, None])[:, :, 0], dtype=np.float64)
    determinant = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    likelihoods = -determinant - (len(points) + WEIGHT) / 2 * np.log((solved**2).sum(axis=1) + WEIGHT)
    likelihoods -= 0.5 * ((settings[:, :-1] / LENGTH_SPREAD) ** 2).sum(axis=1)
    likelihoods -= 0.5 * ((settings[:, -1] - NOISE) / NOISE_SPREAD) ** 2
    return _Chains(settings, factors, solved, likelihoods)


def _kernel(one: Floats, other: Floats, lengths: Floats, kind: bool) -> Floats:
    """Covariances along a dimension [chains, len(one), len(other)], for lengths [chains]."""
    apart = np.abs(one[:, None] - other)[None]
    if kind == EXPONENTIAL:
        return np.asarray(np.exp(-1.0 * (apart > 1e-9) / lengths[:, None, None]))
    scaled = math.sqrt(5) * apart / lengths[:, None, None]
    return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))


def _effects(
    chains: _Chains, points: Floats, kinds: list[bool], places: list[Floats], generator: np.random.Generator
) -> list[Floats]:
    """Main effects at the places of each dimension, drawn jointly: a list of [DRAWS, chains, places]."""
    told, between = _averaged(chains.lengths, points, kinds, places)
    explained = np.linalg.solve(chains.factors, np.swapaxes(told, 1, 2))
    mean = (np.swapaxes(explained, 1, 2) @ chains.solved[:, :, None])[:, :, 0]
    values, vectors = np.linalg.eigh(between - np.swapaxes(explained, 1, 2) @ explained)
    roots = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    scale, freedom = chains.variances
    deviation = np.sqrt(scale / generator.chisquare(freedom, size=(DRAWS, len(scale))))
    normal = generator.standard_normal((DRAWS, *mean.shape))
    drawn = mean + deviation[:, :, None] * np.einsum("cij,dcj->dci", roots, normal)
    return np.split(drawn, np.cumsum([len(each) for each in places])[:-1], axis=2)


def _averaged(lengths: Floats, points: Floats, kinds: list[bool], places: list[Floats]) -> tuple[Floats, Floats]:
    """Covariances of effects with the values [chains, places, n], and among each other [chains, places, places].

    An effect is the process averaged over all dimensions except one; `places` of all dimensions follow one another.
    """
    along = list(zip(places, points.T, lengths.T, kinds, strict=True))
    to_values = [_kernel(grid, column, length, kind) for grid, column, length, kind in along]
    to_places = [_kernel(grid, grid, length, kind) for grid, _, length, kind in along]
    values_means = [each.mean(axis=1) for each in to_values]
    place_means = [each.mean(axis=1) for each in to_places]
    means = [each.mean(axis=1) for each in place_means]
    count, chains = len(along), len(lengths)

    def rest(of: list[Floats], *without: int) -> Floats:
        left = [each for index, each in enumerate(of) if index not in without]
        return np.prod(left, axis=0) if left else np.ones_like(of[0])

    told = [to_values[one] * rest(values_means, one)[:, None, :] for one in range(count)]
    between = [
        [
            (to_places[one] if one == other else place_means[one][:, :, None] * place_means[other][:, None, :])
            * rest(means, one, other).reshape(chains, 1, 1)
            for other in range(count)
        ]
        for one in range(count)
    ]
    return np.concatenate(told, axis=1) + MEAN_VARIANCE, np.block(between) + MEAN_VARIANCE
