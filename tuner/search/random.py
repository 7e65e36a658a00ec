"""Random search (Bergstra and Bengio 2012), by default with points that fill the space evenly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.errors import StudyError, shown
from tuner.search.base import Problem, SearchAlgorithm, Searcher
from tuner.search.sobol import Sequence, sobol
from tuner.space import Config, Space


@dataclass(frozen=True)
class Random(SearchAlgorithm):
    """Draws from the space: a scrambled Sobol sequence (Owen 1998), or with `sobol=False` independent draws.

    Any part of the sequence is spread over the whole space more evenly than independent draws.
    """

    sobol: bool = True

    @property
    def takes_two_objectives(self) -> bool:
        """True: it learns from neither."""
        return True

    @property
    def learns(self) -> bool:
        """False."""
        return False

    def check(self, space: Space) -> None:
        """Every space is allowed. Raises StudyError if `sobol` is not True or False."""
        if not isinstance(self.sobol, bool):
            raise StudyError(f"Random.sobol needs True or False, got {shown(self.sobol)}; use one of them")

    def build(self, problem: Problem) -> Searcher:
        """A searcher without memory."""
        return SobolSearcher(problem.space, problem.seed) if self.sobol else RandomSearcher(problem.space, problem.seed)


class RandomSearcher(Searcher):
    """Draws the configuration of each trial from its own generator."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed

    def suggest(self, number: int, attempt: int = 0) -> Config:
        """A draw that depends only on seed, number and attempt."""
        return self._space.sample(np.random.default_rng([self._seed, number, attempt]))


class SobolSearcher(RandomSearcher):
    """Gives trial n the n-th point of the sequence; another attempt at the same trial is an independent draw."""

    def suggest(self, number: int, attempt: int = 0) -> Config:
        """A point that depends only on seed, number and attempt."""
        if attempt or not self._space.dimensions:
            return super().suggest(number, attempt)
        config = self._space.decode(self._sequence.point(number))
        if all(domain.encodable for domain in self._space.dimensions.values()):
            return config
        return self._space.complete(config, np.random.default_rng([self._seed, number]))

    @cached_property
    def _sequence(self) -> Sequence:
        return sobol(len(self._space.dimensions), np.random.default_rng([self._seed]))
