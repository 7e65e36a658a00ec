"""Random search (Bergstra and Bengio 2012), by default with points that fill the space evenly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tuner.errors import StudyError, shown
from tuner.search.base import Problem, SearchAlgorithm, Searcher
from tuner.space import Config, Space

if TYPE_CHECKING:
    from scipy.stats.qmc import Sobol


@dataclass(frozen=True)
class Random(SearchAlgorithm):
    """Draws from the space: a scrambled Sobol sequence (Owen 1998), or with `sobol=False` independent draws.

    Any stretch of the sequence is spread over the whole space more evenly than independent draws are.
    """

    sobol: bool = True

    @property
    def needs(self) -> tuple[str, ...]:
        """Where the sequence comes from."""
        return ("scipy.stats.qmc",) if self.sobol else ()

    def check(self, space: Space) -> None:
        """Every space will do. Raises StudyError for another `sobol` than True or False."""
        if not isinstance(self.sobol, bool):
            raise StudyError(f"Random.sobol needs True or False, got {shown(self.sobol)}; use one of them")

    def build(self, problem: Problem) -> Searcher:
        """A searcher without memory."""
        return SobolSearcher(problem.space, problem.seed) if self.sobol else RandomSearcher(problem.space, problem.seed)


class RandomSearcher(Searcher):
    """Draws the configuration of each trial from a generator of its own."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed

    def suggest(self, number: int, attempt: int = 0) -> Config:
        """A draw that depends on seed, number and attempt alone."""
        return self._space.sample(np.random.default_rng([self._seed, number, attempt]))


class SobolSearcher(RandomSearcher):
    """Gives trial n the n-th point of the sequence; another attempt at the same trial is an independent draw."""

    def suggest(self, number: int, attempt: int = 0) -> Config:
        """A point that depends on seed, number and attempt alone."""
        if attempt or not self._space.dimensions:
            return super().suggest(number, attempt)
        self._sequence.reset()
        if number:
            self._sequence.fast_forward(number)
        config = self._space.decode(self._sequence.random(1)[0])
        if all(domain.encodable for domain in self._space.dimensions.values()):
            return config
        return self._space.complete(config, np.random.default_rng([self._seed, number]))

    @cached_property
    def _sequence(self) -> Sobol:
        from scipy.stats.qmc import Sobol

        return Sobol(len(self._space.dimensions), scramble=True, rng=np.random.default_rng([self._seed]))
