"""Configurations to start a first study from, suggested by studies that come with tuner.

`portfolio.json` has the trials of studies of the trainer's own hyperparameters, on varied data and networks, and how
much each hyperparameter matters, as benchmarks/portfolio.py found.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import SpaceError
from tuner.search.base import Floats, Problem
from tuner.search.history import greedy, moved_inside
from tuner.search.points import Features, unordered_options
from tuner.search.usual_names import named_alike
from tuner.space import Config, Space, constructors

MOST_DRAWS = 20_000  # of the space: about half a second
CANDIDATES = 256  # random configurations of the user's space, from which the most useful are chosen
BEST = 8  # trials of each study that are candidates, too
GOOD = 0.2  # regret of a trial that did well
FEWEST_STUDIES = 5  # that have such trials, for a range of good values to be known
EDGE, FEWEST_THERE, RARE = 0.1, 10, 1 / 3  # share of a range at its end; trials in it; how often good, of the usual
_STREAM = 4  # keeps the random stream apart from others


@dataclass(frozen=True)
class Kernel:
    """Covariance of two trials' regrets, each of a configuration x in a study s.

    k = m(x, x')·(shared + own·[s = s']) + noise·[same trial], where m is Matérn 5/2 with a length for each
    hyperparameter: what is good everywhere, and what is good in only one study (the intrinsic model of Bonilla et al.
    2007, with one correlation for all).
    """

    lengths: Mapping[str, float]
    shared: float
    own: float
    noise: float


@dataclass(frozen=True)
class Portfolio:
    """Trials of several studies, and a model of them.

    Attributes:
        space: all hyperparameters that were searched
        kernel: of the model
        studies: their names
        sources: for each the data set that its images come from
        kinds: for each "random" where its trials started from random weights, "weights" from pretrained ones
        study: of each trial, the number of its study: [trials]
        configs: of each trial
        regrets: of each trial: 0 the best of its study, 1 the median of random ones, 1.5 the worst that counts:
            [trials]
    """

    space: Space
    kernel: Kernel
    studies: tuple[str, ...]
    sources: tuple[str, ...]
    kinds: tuple[str, ...]
    study: npt.NDArray[np.int64]
    configs: Sequence[Config]
    regrets: Floats

    def without(self, source: str) -> Portfolio:
        """The portfolio without the studies on one data set."""
        kept = [index for index, one in enumerate(self.study) if self.sources[one] != source]
        return Portfolio(
            *(self.space, self.kernel, self.studies, self.sources, self.kinds),
            *(self.study[kept], [self.configs[index] for index in kept], self.regrets[kept]),
        )

    def points(self, configs: Sequence[Mapping[str, Any]]) -> Floats:
        """Configurations [n], of any space, as points [n, columns], in units of the kernel's lengths."""
        return self._points([moved_inside(self.space, config) for config in configs])

    def _points(self, configs: Sequence[Config]) -> Floats:
        units = np.array([self.space.encode(config) for config in configs])
        return np.asarray(Features(self.space).points(units) / columns_of(self.space, self.kernel.lengths))

    def expected(self, configs: Sequence[Mapping[str, Any]], kinds: Collection[str]) -> Floats:
        """How far configurations [n] are expected to be behind the best in each study of these kinds: [studies, n]."""
        from scipy.linalg import cho_factor, cho_solve

        from tuner.search.gaussian_process import matern  # loads scipy

        kernel, known = self.kernel, self._points(self.configs)
        same = self.study[:, None] == self.study
        covariance = matern(known, known) * (kernel.shared + kernel.own * same) + kernel.noise * np.eye(len(known))
        middle = float(self.regrets.mean())
        weights = cho_solve(cho_factor(covariance, lower=True), self.regrets - middle)
        between = matern(self.points(configs), known)
        told = [n for n in np.unique(self.study) if self.kinds[n] in kinds]
        return np.array([middle + between @ (weights * (kernel.shared + kernel.own * (self.study == n))) for n in told])

    def best(self, kinds: Collection[str]) -> list[Config]:
        """The configurations of the best trials of each study."""
        found = []
        for number in np.unique(self.study):
            if self.kinds[number] in kinds:
                trials = np.flatnonzero(self.study == number)
                found += [
                    self.configs[index] for index in trials[np.argsort(self.regrets[trials], kind="stable")[:BEST]]
                ]
        return found

    def good_range(self, name: str, kind: str, finetune: str) -> tuple[int, float, float]:
        """In how many studies trials did well, and between which values of a number all of these lie.

        A limit is infinite where trials near that end of what was searched did well about as often as others, so that
        values beyond it may be good, too; both are where too few studies of this kind and with this `finetune` have the
        hyperparameter.
        """
        rows = [
            row
            for row, (number, config) in enumerate(zip(self.study, self.configs, strict=True))
            if name in config and self.kinds[number] == kind and config["finetune"] == finetune
        ]
        good, values = self.regrets[rows] <= GOOD, np.array([self.configs[row][name] for row in rows])
        studies = len(set(self.study[rows][good]))
        if studies < FEWEST_STUDIES:
            return studies, -np.inf, np.inf
        units = np.array([self.space.dimensions[name].encode(value) for value in values])
        low, high = (
            there.sum() >= FEWEST_THERE and good[there].mean() <= RARE * good.mean()
            for there in (units < EDGE, units > 1 - EDGE)
        )
        return studies, values[good].min() if low else -np.inf, values[good].max() if high else np.inf


def columns_of(space: Space, lengths: Mapping[str, float]) -> Floats:
    """The length of each column of points: [columns]."""
    return np.repeat([lengths[name] for name in space.dimensions], unordered_options(space))


@cache
def shipped() -> Portfolio:
    """The content of `portfolio.json`."""
    return read(json.loads(files("tuner.search").joinpath("portfolio.json").read_text(encoding="utf-8")))


def read(told: Mapping[str, Any]) -> Portfolio:
    """A portfolio from JSON, where null is the value of a hyperparameter that isn't part of a configuration."""
    space = Space({name: _domain(**one) for name, one in told["space"].items()})
    names = list(told["space"])
    configs = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} for row in told["configs"]
    ]
    return Portfolio(
        *(space, Kernel(**told["kernel"]), tuple(told["studies"]), tuple(told["sources"]), tuple(told["kinds"])),
        *(np.array(told["study"], dtype=np.int64), configs, np.array(told["regrets"], dtype=float)),
    )


def _domain(kind: str, arguments: Sequence[Any], when: Mapping[str, Any] | None = None) -> Any:
    domain = getattr(constructors, kind)(*arguments)
    return domain.when(**when) if when else domain


def suggested_by_portfolio(
    problem: Problem,
    kinds: Collection[str],
    defaults: Mapping[str, Any],
    top: int,
    portfolio: Portfolio | None = None,
    names: Mapping[str, str] | None = None,
    first: Sequence[Config] = (),
) -> tuple[Config, ...]:
    """The most promising configurations of a space by the shipped studies; each does well in studies where the others
    do badly.

    Args:
        problem: what is searched
        kinds: only studies of these kinds are used
        defaults: values of the hyperparameters that the space doesn't have, where they are known
        top: how many
        portfolio: used instead of the shipped one
        names: the space's names of the portfolio's hyperparameters; None if they have the portfolio's own
        first: configurations of the space that come before them, and aren't counted
    """
    portfolio = portfolio or shipped()
    names = {name: name for name in portfolio.space.dimensions} if names is None else names
    if top < 1 or not names.keys() & set(problem.space.dimensions):
        return ()
    candidates = _candidates(problem, portfolio, kinds, names, defaults)
    if not candidates:
        return ()
    taken = {problem.space.key(config) for config in first}
    candidates = [*first, *(config for config in candidates if problem.space.key(config) not in taken)]
    whole = [{**defaults, **_renamed(problem.space.flatten(config), names)} for config in candidates]
    expected = np.clip(portfolio.expected(whole, kinds), 0, 1)
    chosen = greedy(expected, top + len(first), range(len(first)))[len(first) :]
    return tuple({problem.space.key(candidates[index]): candidates[index] for index in chosen}.values())


def of_defaults(problem: Problem, defaults: Mapping[str, Any]) -> tuple[Config, ...]:
    """The configuration of a space that is nearest to the defaults: the first one of SMAC, too (Hutter et al. 2011).

    What has no default is drawn. There is none where the space has nothing that has a default, or where a constraint
    rules it out.
    """
    known = moved_inside(problem.space, defaults)
    generator = np.random.default_rng(np.random.SeedSequence(problem.seed, spawn_key=(_STREAM,)))
    found = _Draws(problem.space).complete(known, generator) if problem.space.flatten(known) else None
    return () if found is None else (found,)


def usual_names(space: Space, portfolio: Portfolio | None = None) -> dict[str, str]:
    """A function's names of the portfolio's hyperparameters -> the portfolio's own; see `tuner.search.usual_names`."""
    return named_alike(space, (portfolio or shipped()).space)


def _candidates(
    problem: Problem,
    portfolio: Portfolio,
    kinds: Collection[str],
    names: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> list[Config]:
    """Random configurations of the space, and good ones; as close as possible to what the studies searched."""
    space, found, draws = problem.space, [], _Draws(problem.space)
    back = {known: name for name, known in names.items()}
    for index, config in enumerate([*({} for _ in range(CANDIDATES)), *portfolio.best(kinds)]):
        generator = np.random.default_rng(np.random.SeedSequence(problem.seed, spawn_key=(_STREAM, index)))
        drawn = draws.complete(moved_inside(space, _renamed(config, back)), generator)
        if drawn is None:
            continue
        flat = space.flatten(drawn)
        searched = moved_inside(portfolio.space, {**defaults, **_renamed(flat, names)})
        near = {name: value for name, value in _renamed(searched, back).items() if name in flat}
        moved = draws.complete(moved_inside(space, flat | near), generator)
        found += [] if moved is None else [moved]
    return found


class _Draws:
    """Draws of a space, of which there are MOST_DRAWS in all: a constraint may allow next to nothing."""

    def __init__(self, space: Space) -> None:
        self._space, self._left = space, MOST_DRAWS

    def complete(self, config: Config, generator: np.random.Generator) -> Config | None:
        """The configuration with missing values drawn; None if the constraint rules out all draws that are left."""
        space = self._space
        known = space.constants.keys() | space.flatten(config).keys()
        try:
            for drawn in islice(space.draws(config, generator), self._left):
                self._left -= 1
                if space.allows(drawn):
                    return drawn
                if space.flatten(drawn).keys() <= known:  # nothing is drawn: the next one would be the same
                    break
        except SpaceError:  # a function of the user's fails for it
            pass
        return None


def _renamed(flat: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The values of these names, by their other names."""
    return {names[name]: value for name, value in flat.items() if name in names}
