"""Every configuration of a finite space, in an order that spreads over the whole space early."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.errors import SpaceError
from tuner.search.base import Problem, SearchAlgorithm, Searcher
from tuner.search.points import is_ordered
from tuner.space import LARGEST_LISTED, Config, Space


@dataclass(frozen=True)
class Grid(SearchAlgorithm):
    """Every combination of the values of `grid_search`, `choice`, q… and integer dimensions, each once.

    The order spreads, so that a search that ends early has seen all regions: a value of a hyperparameter comes again
    only after its other values, and neighbours come late. It depends only on the space, not on the seed.
    """

    @property
    def learns(self) -> bool:
        """False."""
        return False

    @property
    def takes_two_objectives(self) -> bool:
        """True: it learns from neither."""
        return True

    def check(self, space: Space) -> None:
        """Raise SpaceError for a space that is infinite, or too large to list."""
        for name, domain in space.dimensions.items():
            if math.isinf(domain.size):
                raise SpaceError(
                    f"Grid needs a finite set of values, got {domain.describe()} for {name!r}; "
                    "use grid_search([...]), choice([...]) or a q… domain, or search=Random()"
                )
        if space.size > LARGEST_LISTED:
            raise SpaceError(
                f"Grid takes up to {LARGEST_LISTED:,} configurations, got {space.size:,}; list fewer values, or use "
                "Random()"
            )

    def build(self, problem: Problem) -> Searcher:
        """A searcher that goes through the grid once."""
        return GridSearcher(problem.space)


class GridSearcher(Searcher):
    """Suggests the configuration that adds most to those tried before.

    Balance comes first: the values of each hyperparameter are used as equally often as possible. Among equally balanced
    configurations the one farthest from all tried ones wins (Gonzalez 1985, Clustering to Minimize the Maximum
    Intercluster Distance), and then the first in the order of the grid.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._configs = list(space.grid())
        self._rows = {space.key(config): row for row, config in enumerate(self._configs)}
        self._units = np.array([space.encode(config) for config in self._configs])  # [configs, dimensions]
        self._values = _value_indices(self._units)
        self._ordered = np.array([is_ordered(domain) for domain in space.dimensions.values()], dtype=bool)
        self._levels = self._values.max(axis=0) + 1
        self._uses = [np.zeros(levels) for levels in self._levels]
        self._distances = np.full(len(self._configs), math.inf)
        self._untried = np.ones(len(self._configs), dtype=bool)

    def suggest(self, number: int, attempt: int = 0) -> Config | None:
        """The next configuration; None when all were tried."""
        rows = np.flatnonzero(self._untried)
        if not len(rows):
            return None
        overuse = np.zeros(len(rows))
        for uses, levels, column in zip(self._uses, self._levels, self._values.T, strict=True):
            overuse += uses[column[rows]] * levels
        balanced = rows[overuse == overuse.min()]
        config = self._configs[int(balanced[self._distances[balanced].argmax()])]
        return self._space.unflatten(self._space.flatten(config))

    def adopt(self, number: int, config: Config) -> None:
        """Skip the configuration from now on, and suggest others far from it."""
        row = self._rows.get(self._space.key(config))
        if row is None or not self._untried[row]:
            return
        self._untried[row] = False
        for uses, value in zip(self._uses, self._values[row], strict=True):
            uses[value] += 1
        np.minimum(self._distances, self._distances_to(row), out=self._distances)

    def _distances_to(self, row: int) -> npt.NDArray[np.float64]:
        """Euclidean in the unit cube, [configs]; unordered or absent values are 0 apart if the same, else 1."""
        steps = np.abs(self._units - self._units[row])
        measurable = self._ordered & ~np.isnan(steps)
        differences = np.where(measurable, steps, self._values != self._values[row])
        return np.asarray(np.sqrt((differences**2).sum(axis=1)))


def _value_indices(units: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Each column's values as 0, 1, …; nan, which stands for an absent value, is one of them."""
    indices = np.zeros(units.shape, dtype=np.int64)
    for column in range(units.shape[1]):
        indices[:, column] = np.unique(units[:, column], return_inverse=True)[1]
    return indices
