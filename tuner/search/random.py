"""Random search (Bergstra and Bengio 2012)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.search.base import Mode, SearchAlgorithm, Searcher
from tuner.space import Config, Space


@dataclass(frozen=True)
class Random(SearchAlgorithm):
    """Independent draws from the space."""

    def check(self, space: Space) -> None:
        """Every space will do."""

    def build(self, space: Space, *, mode: Mode, seed: int, trials: int | None) -> Searcher:
        """A searcher without memory."""
        return RandomSearcher(space, seed)


class RandomSearcher(Searcher):
    """Draws the configuration of each trial from a generator of its own."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed

    def suggest(self, number: int, attempt: int = 0) -> Config:
        """A draw that depends on seed, number and attempt alone."""
        return self._space.sample(np.random.default_rng([self._seed, number, attempt]))
