"""What is known before a first study: studies that are shipped, and the configurations that they suggest to start from.

`portfolio.json` has the trials of studies of the trainer's own hyperparameters, on varied data and models; the script
that made it is benchmarks/portfolio.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np

from tuner.errors import SpaceError
from tuner.search.base import Floats, Problem
from tuner.search.history import greedy, moved_inside
from tuner.search.multi_fidelity import MultiFidelityGPSearcher
from tuner.space import Config, Space, constructors

CANDIDATES = 256  # random configurations of the user's space, of which the most useful are taken
OF_EACH = 3  # of a shipped study's best trials that are candidates too
_STREAM = 4  # sets the random numbers that are drawn here apart


@dataclass(frozen=True)
class ShippedStudy:
    """A study that comes with the package.

    Attributes:
        name: data and network
        source: the data set that its images come from
        kind: "random" where its trials started from random weights, "weights" from pretrained ones
        space: the hyperparameters that it searched
        constants: what it had set
        epochs: of its full trials
        rungs: the epochs that its values are of
        configs: of its trials
        values: accuracy on many images at each rung, higher is better: [trials, rungs], nan where it had diverged
    """

    name: str
    source: str
    kind: str
    space: Space
    constants: Mapping[str, Any]
    epochs: int
    rungs: tuple[int, ...]
    configs: Sequence[Config]
    values: Floats

    @cached_property
    def model(self) -> MultiFidelityGPSearcher:
        """A model of its values."""
        problem = Problem(self.space, max_epochs=self.epochs, rungs=self.rungs)
        model = MultiFidelityGPSearcher(problem, startup=1, candidates=1)
        for number, (config, values) in enumerate(zip(self.configs, self.values, strict=True)):
            model.adopt(number, config)
            for epoch, value in zip(self.rungs, values, strict=True):
                if np.isfinite(value):
                    model.observe(number, epoch, float(value))
            model.end(number, "completed" if np.isfinite(values[-1]) else "failed")
        return model

    @property
    def best(self) -> list[Config]:
        """The configurations of its best trials, the best first."""
        order = np.argsort(-np.nan_to_num(self.values[:, -1], nan=-np.inf), kind="stable")
        return [{**self.constants, **self.configs[index]} for index in order[:OF_EACH]]

    def regrets(self, units: Floats, configs: Sequence[Mapping[str, Any]]) -> Floats:
        """How far configurations [n], at units [n, dimensions] of the study's space, are expected to stay behind.

        0 is as good as the best of them, 1 as bad as half of them, or worse; nan where the study, which had something
        else set, says nothing of one.
        """
        expected = self.model.expect(units)
        known = np.array([all(c.get(n, value) == value for n, value in self.constants.items()) for c in configs])
        if not known.any():
            return np.full(len(configs), np.nan)
        best, usual = float(expected[known].max()), float(np.median(expected[known]))
        return np.where(known, np.clip((best - expected) / max(best - usual, 1e-9), 0.0, 1.0), np.nan)


@cache
def shipped_studies() -> tuple[ShippedStudy, ...]:
    """What `portfolio.json` has."""
    return read_studies(files("tuner.search").joinpath("portfolio.json").read_text(encoding="utf-8"))


def read_studies(text: str) -> tuple[ShippedStudy, ...]:
    """Studies as JSON has them."""
    told = json.loads(text)
    spaces = {name: Space({n: _domain(**one) for n, one in space.items()}) for name, space in told["spaces"].items()}
    return tuple(
        ShippedStudy(
            *(one["name"], one["source"], one["kind"], spaces[one["space"]], one["constants"]),
            *(told["epochs"], tuple(told["rungs"])),
            [dict(zip(names, row, strict=True)) for names, row in _rows(one, spaces[one["space"]])],
            np.array(one["values"], dtype=float) / told["scale"],
        )
        for one in told["studies"]
    )


def _rows(study: Mapping[str, Any], space: Space) -> list[tuple[list[str], list[Any]]]:
    """Names and values of each trial: of a dimension that is no part of a configuration the value is null."""
    found = []
    for row in study["configs"]:
        known = [(name, value) for name, value in zip(space.dimensions, row, strict=True) if value is not None]
        found.append(([name for name, _ in known], [value for _, value in known]))
    return found


def _domain(kind: str, arguments: Sequence[Any], when: Mapping[str, Any] | None = None) -> Any:
    domain = getattr(constructors, kind)(*arguments)
    return domain.when(**when) if when else domain


def suggested_by_portfolio(
    problem: Problem, kinds: Collection[str], defaults: Mapping[str, Any], top: int
) -> tuple[Config, ...]:
    """`suggested` by the shipped studies of these kinds."""
    return suggested(problem, [study for study in shipped_studies() if study.kind in kinds], defaults, top)


def suggested(
    problem: Problem,
    studies: Collection[ShippedStudy],
    defaults: Mapping[str, Any],
    top: int,
) -> tuple[Config, ...]:
    """The configurations of the problem's space that the studies expect most of, each helping where others do badly.

    Args:
        problem: what is searched
        studies: those of such trials
        defaults: what a hyperparameter is that the space doesn't have
        top: how many
    """
    if top < 1 or not studies:
        return ()
    spaces = list({id(study.space): study.space for study in studies}.values())
    if not {name for space in spaces for name in space.dimensions} & set(problem.space.dimensions):
        return ()
    candidates = _candidates(problem, spaces, [config for study in studies for config in study.best])
    if not candidates:
        return ()
    whole = [{**defaults, **problem.space.flatten(config)} for config in candidates]
    units = {id(space): np.array([space.encode(moved_inside(space, config)) for config in whole]) for space in spaces}
    regrets = np.array([study.regrets(units[id(study.space)], whole) for study in studies])
    regrets = regrets[~np.isnan(regrets).all(axis=1)]
    if not len(regrets):
        return ()
    chosen = greedy(np.where(np.isnan(regrets), np.nanmean(regrets, axis=1)[:, None], regrets), top)
    return tuple({problem.space.key(candidates[index]): candidates[index] for index in chosen}.values())


def _candidates(problem: Problem, spaces: Sequence[Space], best: Sequence[Config]) -> list[Config]:
    """Random configurations of the problem's space, and good ones; as near as may be to what the spaces have."""
    found = []
    for index, config in enumerate([*({} for _ in range(CANDIDATES)), *best]):
        generator = np.random.default_rng(np.random.SeedSequence(problem.seed, spawn_key=(_STREAM, index)))
        try:
            known = problem.space.flatten(problem.space.complete(moved_inside(problem.space, config), generator))
            for space in spaces:
                known |= space.flatten(moved_inside(space, known))
            found.append(problem.space.complete(moved_inside(problem.space, known), generator))
        except SpaceError:  # the constraint rules it out
            continue
    return found
