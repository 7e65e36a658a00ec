"""Every configuration of a finite space, in an order that spreads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.errors import SpaceError
from tuner.search.base import Mode, SearchAlgorithm, Searcher
from tuner.space import Config, Space

LARGEST_GRID = 100_000
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Grid(SearchAlgorithm):
    """Every combination of the values of `grid_search`, `choice`, q… and integer dimensions, each once.

    Steps of about 0.618 of the grid's size lead through it, so that a search that ends early has seen all regions.
    """

    def check(self, space: Space) -> None:
        """Raise SpaceError for a space that is infinite, or too large to list."""
        for name, domain in space.dimensions.items():
            if math.isinf(domain.size):
                raise SpaceError(
                    f"Grid needs a finite set of values, got {domain.describe()} for {name!r}; "
                    "use grid_search([...]), choice([...]) or a q… domain, or search=Random()"
                )
        if space.size > LARGEST_GRID:
            raise SpaceError(
                f"Grid takes up to {LARGEST_GRID:,} configurations, got {space.size:,}; list fewer values, or use "
                "Random()"
            )

    def build(self, space: Space, *, mode: Mode, seed: int, trials: int | None) -> Searcher:
        """A searcher that walks through the grid once."""
        return GridSearcher(space)


class GridSearcher(Searcher):
    """Suggests the next configuration of the walk that no trial has yet."""

    def __init__(self, space: Space) -> None:
        self._space = space
        configs = list(space.grid())
        self._walk = [configs[index] for index in spread_order(len(configs))]
        self._position = 0
        self._seen: set[str] = set()

    def suggest(self, number: int, attempt: int = 0) -> Config | None:
        """The next one; None at the end of the walk."""
        while self._position < len(self._walk) and self._space.key(self._walk[self._position]) in self._seen:
            self._position += 1
        return self._walk[self._position] if self._position < len(self._walk) else None

    def adopt(self, number: int, config: Config) -> None:
        """Pass it over from now on."""
        self._seen.add(self._space.key(config))


def spread_order(count: int) -> list[int]:
    """0 … count - 1, each once, in steps of about count · 0.618, the largest such step that meets all of them."""
    step = max(1, round(count * GOLDEN_RATIO))
    while math.gcd(step, count) != 1:
        step -= 1
    return [index * step % count for index in range(count)]
