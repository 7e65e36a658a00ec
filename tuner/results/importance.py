"""How much each hyperparameter matters: functional analysis of variance on a forest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.space import Config, Space

Floats = npt.NDArray[np.float64]
RESAMPLES, TREES = 10, 12  # of the trials; for each of them
FEWEST_TRIALS = 4  # fewer say nothing
MOST_TRIALS = 2000  # more than the forest needs; a draw of them is taken
PLACES = 512  # along a dimension
POINTS = 4096  # in the cube


@dataclass(frozen=True)
class Importance:
    """The share of the metric's variance that one hyperparameter alone explains.

    `deviation` is its standard error: how much the share varies over resamples of the trials (bootstrap). What
    hyperparameters do only together is nobody's share.
    """

    name: str
    share: float
    deviation: float


def importance(space: Space, configs: Sequence[Config], values: Sequence[float], *, seed: int = 0) -> list[Importance]:
    """The dimensions of the space by how much they matter for `values`, those that matter most first.

    Extremely randomised trees (Geurts et al. 2006) are fitted to the configurations' places in the unit cube, with a
    hyperparameter that is no part of a configuration in its middle. A dimension's share is the variance of the
    prediction averaged over all others, by the variance of the prediction (fANOVA, Hutter et al. 2014). Empty with
    fewer than 4 trials, or where all values are the same.
    """
    names = [name for name, domain in space.dimensions.items() if domain.encodable]
    if len(values) < FEWEST_TRIALS or not names or np.ptp(values) == 0:
        return []
    columns = [list(space.dimensions).index(name) for name in names]
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(len(values))[:MOST_TRIALS]
    units = np.nan_to_num([space.encode(configs[index]) for index in drawn], nan=0.5)[:, columns]
    trees = _forests(units, np.asarray(values, dtype=float)[drawn], generator)
    points = _spread(len(names), generator)
    predictions = np.array([[tree.predict(points) for tree in forest] for forest in trees])
    marginals = np.array([[_marginals(tree.tree_, len(names)) for tree in forest] for forest in trees])
    shares = _shares(np.concatenate(marginals), np.concatenate(predictions))
    errors = np.std([_shares(*resample) for resample in zip(marginals, predictions, strict=True)], axis=0, ddof=1)
    found = map(Importance, names, shares.tolist(), errors.tolist())
    return sorted(found, key=lambda one: -one.share)


def _forests(units: Floats, values: Floats, generator: np.random.Generator) -> list[list[Any]]:
    """Trees grown on each of some resamples."""
    from sklearn.ensemble import ExtraTreesRegressor

    forests = []
    for seed in range(RESAMPLES):
        resample = generator.integers(len(values), size=len(values))
        forest = ExtraTreesRegressor(TREES, random_state=seed).fit(units[resample], values[resample])
        forests.append(list(forest.estimators_))
    return forests


def _spread(dimensions: int, generator: np.random.Generator) -> Floats:
    """A Latin hypercube [POINTS, dimensions]: evenly along each dimension."""
    strata = generator.permuted(np.tile(np.arange(POINTS), (dimensions, 1)), axis=1).T
    return np.asarray((strata + generator.random(strata.shape)) / POINTS)


def _shares(marginals: Floats, predictions: Floats) -> Floats:
    """[dimensions], of trees' marginals [trees, dimensions, places] and predictions [trees, points]."""
    total = predictions.mean(axis=0).var()
    alone = marginals.mean(axis=0).var(axis=1)
    return np.asarray(alone / total if total > 0 else np.zeros(len(alone)))


def _marginals(tree: Any, dimensions: int) -> Floats:
    """A tree's prediction along each dimension, averaged over all others: [dimensions, places]."""
    lower, upper, values = _leaves(tree, dimensions)
    volumes = np.prod(upper - lower, axis=1)
    places = (np.arange(PLACES) + 0.5) / PLACES
    found = []
    for low, high in zip(lower.T, upper.T, strict=True):
        heights = values * volumes / (high - low)
        changes = np.zeros(PLACES + 1)
        np.add.at(changes, np.searchsorted(places, low), heights)
        np.subtract.at(changes, np.searchsorted(places, high), heights)
        found.append(np.cumsum(changes)[:-1])
    return np.array(found)


def _leaves(tree: Any, dimensions: int) -> tuple[Floats, Floats, Floats]:
    """The boxes [leaves, dimensions] of a tree's leaves in the unit cube, and their values [leaves]."""
    lower, upper, values = [], [], []
    waiting = [(0, np.zeros(dimensions), np.ones(dimensions))]
    while waiting:
        node, low, high = waiting.pop()
        feature = tree.feature[node]
        if feature < 0:
            lower.append(low)
            upper.append(high)
            values.append(tree.value[node].item())
            continue
        left_high, right_low = high.copy(), low.copy()
        left_high[feature] = right_low[feature] = tree.threshold[node]
        waiting += [(tree.children_left[node], low, left_high), (tree.children_right[node], right_low, high)]
    return np.array(lower), np.array(upper), np.array(values)
