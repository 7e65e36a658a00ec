"""How much each hyperparameter matters: functional analysis of variance on a forest; and a headline about it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.results.leading import chances_to_lead
from tuner.search.points import unordered_options
from tuner.space import Config, Space

Floats = npt.NDArray[np.float64]
MOST_RESAMPLES, FEWEST_RESAMPLES, TREES = 40, 10, 12  # resamples of the trials; trees for each of them
RESAMPLED = 8000  # trials in all resamples together: with many trials few resamples are enough
FEWEST_TRIALS = 4  # with fewer nothing can be said
FEWEST_TO_NAME = 12  # trials, before one hyperparameter is said to matter most
LEADS = 0.62  # probability of leading that one needs to be named: see benchmarks/importance.py
MAY_LEAD = 0.08  # probability of leading that one needs to be named among several possible leaders
MOST_RIVALS = 3  # the most possible leaders that are named
MOST_TRIALS = 2000  # more than the forest needs; of more trials a random sample is used
PLACES = 512  # along a dimension
POINTS = 2048  # in the cube


@dataclass(frozen=True)
class Importance:
    """The share of the metric's variance that one hyperparameter alone explains.

    `deviation` is its standard error: how much the share varies over resamples of the trials (bootstrap). Interactions
    of hyperparameters belong to no share. `trials` is how many it was learned from, `leads` the probability that its
    share is the largest: the mean of two estimates, from the resamples and from a Gaussian process
    (`tuner.results.leading`), which is uncertain where the search has no trials.
    """

    name: str
    share: float
    deviation: float
    trials: int = 0
    leads: float = 0.0


@dataclass(frozen=True)
class Headline:
    """A headline about the most important hyperparameter.

    `leader` is the most important hyperparameter, None if the trials can't show which it is; `rivals` are the
    candidates, if they are few; `text` is the sentence without its end.
    """

    leader: str | None
    rivals: tuple[str, ...]
    text: str


def headline(found: Sequence[Importance], dead: Sequence[str] = ()) -> Headline:
    """Which hyperparameter matters most, if the trials can show it; `found` is the result of `importance`.

    The first is named if its probability of leading is at least 62 %. How often that is right was measured on simulated
    searches with known truth, as users run them, with seeds not used for tuning: see benchmarks/importance.py. `dead`
    are the hyperparameters that are known to change nothing: they are named, but have no rank.
    """
    if dead:
        others = headline(found) if found else Headline(None, (), "Nothing can be ranked")
        return replace(others, text=f"{others.text}; {', '.join(dead)} changed nothing")
    if not found:
        return Headline(None, (), "Too few trials to tell what matters")
    first = found[0]
    told = f"{first.share:.0%} ± {first.deviation:.0%}"
    worth = ("nearly all" if told == "100% ± 0%" else told) + " of the variance"
    if len(found) == 1:
        return Headline(first.name, (), f"{first.name} has no other hyperparameter to be compared with")
    if first.trials >= FEWEST_TO_NAME and first.leads >= LEADS:
        return Headline(first.name, (), f"{first.name} matters most: {worth}")
    rivals = tuple(one.name for one in found if one is first or one.leads >= MAY_LEAD)
    if first.trials < FEWEST_TO_NAME or not 1 < len(rivals) <= MOST_RIVALS:
        return Headline(None, (), f"Too few trials to tell which of {len(found)} hyperparameters matters most")
    together = ", ".join(rivals[:-1]) + f" and {rivals[-1]}"
    return Headline(None, rivals, f"{together} can't be distinguished")


def importance(
    space: Space,
    configs: Sequence[Config],
    values: Sequence[float],
    *,
    draws: Sequence[Sequence[float]] = (),
    without: Collection[str] = (),
    seed: int = 0,
) -> list[Importance]:
    """The dimensions of the space by how much they matter for `values`, those that matter most first.

    Extremely randomised trees (Geurts et al. 2006) are fitted to the configurations' points in the unit cube; a
    hyperparameter that isn't part of a configuration gets the middle. A dimension's share is the variance of the
    prediction averaged over all others, divided by the variance of the prediction (fANOVA, Hutter et al. 2014). Empty
    with fewer than 4 trials, or if all values are the same.

    Values must be of one training length: those of trials that were stopped early are first extrapolated to full
    length, see `tuner.results.full_length`. `draws` [draws, n] are other possible values that express the uncertainty
    of this: each resample, and each chain of `chances_to_lead`, uses another draw. `without` names what is known to
    change nothing.
    """
    names = [name for name, domain in space.dimensions.items() if domain.encodable and name not in without]
    if len(values) < FEWEST_TRIALS or not names or np.ptp(values) == 0:
        return []
    columns = [list(space.dimensions).index(name) for name in names]
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(len(values))[:MOST_TRIALS]
    units = np.nan_to_num([space.encode(configs[index]) for index in drawn], nan=0.5)[:, columns]
    told = np.array(draws if len(draws) else [values], dtype=float)[:, drawn]
    trees = _forests(units, told, generator)
    points = _spread(len(names), generator).astype(np.float32)  # as trees need them
    predictions = np.array([[tree.tree_.predict(points)[:, 0] for tree in forest] for forest in trees])
    marginals = np.array([[_marginals(tree.tree_, len(names)) for tree in forest] for forest in trees])
    shares = _shares(np.concatenate(marginals), np.concatenate(predictions))
    each = np.array([_shares(*resample) for resample in zip(marginals, predictions, strict=True)])
    options = [unordered_options(space)[column] for column in columns]
    leads = (_leads_in(each) + chances_to_lead(units, options, told, seed)) / 2
    found = [
        Importance(name, share, error, len(values), chance)
        for name, share, error, chance in zip(
            names, shares.tolist(), each.std(axis=0, ddof=1).tolist(), leads.tolist(), strict=True
        )
    ]
    return sorted(found, key=lambda one: -one.share)


def _forests(units: Floats, draws: Floats, generator: np.random.Generator) -> list[list[Any]]:
    """Trees grown on each of some resamples of the trials, with values [draws, n]."""
    from sklearn.ensemble import ExtraTreesRegressor

    forests = []
    count = len(units)
    for seed in range(max(FEWEST_RESAMPLES, min(MOST_RESAMPLES, RESAMPLED // count))):
        resample = generator.integers(count, size=count)
        values = draws[seed % len(draws)]
        forest = ExtraTreesRegressor(TREES, random_state=seed).fit(units[resample], values[resample])
        forests.append(list(forest.estimators_))
    return forests


def _spread(dimensions: int, generator: np.random.Generator) -> Floats:
    """A Latin hypercube [POINTS, dimensions]: evenly spread along each dimension."""
    strata = generator.permuted(np.tile(np.arange(POINTS), (dimensions, 1)), axis=1).T
    return np.asarray((strata + generator.random(strata.shape)) / POINTS)


def _shares(marginals: Floats, predictions: Floats) -> Floats:
    """Shares [dimensions] from trees' marginals [trees, dimensions, places] and predictions [trees, points]."""
    total = predictions.mean(axis=0).var()
    alone = marginals.mean(axis=0).var(axis=1)
    return np.asarray(alone / total if total > 0 else np.zeros(len(alone)))


def _leads_in(resamples: Floats) -> Floats:
    """From shares [resamples, dimensions] the part of resamples in which each is the largest: [dimensions]."""
    return np.bincount(resamples.argmax(axis=1), minlength=resamples.shape[1]) / len(resamples)


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
    features, thresholds = tree.feature.tolist(), tree.threshold.tolist()
    lefts, rights = tree.children_left.tolist(), tree.children_right.tolist()
    lower, upper, leaves = [], [], []
    waiting = [(0, [0.0] * dimensions, [1.0] * dimensions)]
    while waiting:
        node, low, high = waiting.pop()
        feature = features[node]
        if feature < 0:
            lower.append(low)
            upper.append(high)
            leaves.append(node)
            continue
        left_high, right_low = high.copy(), low.copy()
        left_high[feature] = right_low[feature] = thresholds[node]
        waiting += [(lefts[node], low, left_high), (rights[node], right_low, high)]
    return np.array(lower), np.array(upper), tree.value[leaves, 0, 0]
