"""Decides what is tried next: first the starting points, then the searcher's suggestions; nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

import numpy as np

from tuner.search.base import EndStatus, Problem, Searcher, require_finite
from tuner.space import LARGEST_LISTED, Config, NothingDrawn, Space

ATTEMPTS = 20
RANDOM_ATTEMPTS = 1000
RANDOM_DRAWS = 20_000  # under a constraint: about half a second, in which the driver does nothing else
NOTHING_DRAWN = (
    f"the constraint allows no further configuration that was found in {RANDOM_DRAWS:,} draws, so no further trial is "
    "suggested; loosen it, or narrow the space to where it holds"
)
_START, _UNSEEN, _LEARNED = 1, 2, 3  # keep the random streams of this module apart


class Proposals:
    """A searcher for drivers and simulators: they call `suggest` for one trial after another, and pass on the results.

    First come the `starting_points`, then what was `learned` from earlier studies; either may be partial: what is
    missing is sampled.
    """

    def __init__(
        self,
        problem: Problem,
        searcher: Searcher,
        *,
        starting_points: Sequence[Config] = (),
        learned: Sequence[Config] = (),
    ) -> None:
        self._space, self._searcher = problem.space, searcher
        self._seed, self._trials = problem.seed, problem.trials
        space = problem.space
        self._seen: set[str] = set()
        self._failing: set[int] = set()  # trials whose last try failed, and that wait for another one
        self._size = space.size
        self.nothing_drawn: str | None = None  # why the last proposal failed: too few of all draws may be tried
        self._starts = [space.complete(p, self._generator(_START, i)) for i, p in enumerate(starting_points)]
        memories = [
            config for i, p in enumerate(learned) if (config := _completed(space, p, self._generator(_LEARNED, i)))
        ]
        self._learned = {space.key(config) for config in memories}
        self._starts += memories

    def suggest(self, number: int) -> Config | None:
        """The configuration of trial `number`, new to this search; None when there is nothing more to try."""
        config = self.propose(number)
        if config is not None:
            self.adopt(number, config)
        return config

    def propose(self, number: int) -> Config | None:
        """Like `suggest`, but it isn't decided yet whether it becomes the trial: `adopt` or `refuse` it then."""
        self.nothing_drawn = None
        if (self._trials is not None and number >= self._trials) or len(self._seen) >= self._size:
            return None
        config = self._starting_point()
        return self._suggestion(number) if config is None else config

    def refuse(self, config: Config) -> None:
        """Don't propose it again: it can't be tried."""
        self._seen.add(self._space.key(config))

    def expected_improvement(self, number: int) -> float | None:
        """The searcher's expectation for trial `number`; None if it has none, or if starting points are left."""
        return None if self._starts else self._searcher.expected_improvement(number)

    def expect(self, trials: int | None) -> None:
        """Suggest up to this many trials in all, None for no limit: it was changed while the search runs."""
        self._trials = trials

    def is_new(self, config: Config) -> bool:
        """Whether no trial had the configuration, and the constraint allows it."""
        return self._is_new(config)

    def is_learned(self, config: Config) -> bool:
        """Whether the configuration comes from earlier studies."""
        return self._space.key(config) in self._learned

    def adopt(self, number: int, config: Config) -> None:
        """Take in a trial that exists already, for instance when a search goes on."""
        self._seen.add(self._space.key(config))
        self._searcher.adopt(number, config)

    def price(self, number: int, value: float) -> None:
        """The trial's second objective, of which higher is better."""
        require_finite(number, 0, value)
        self._searcher.price(number, value)

    def observe(self, number: int, epoch: int, value: float) -> None:
        """One epoch's value of the metric. Raises ValueError for NaN and infinity, which no searcher gets to see."""
        require_finite(number, epoch, value)
        self._searcher.observe(number, epoch, value)

    def end(self, number: int, status: EndStatus) -> None:
        """The trial is over."""
        self.goes_on(number)
        self._searcher.end(number, status)

    def fails(self, number: int) -> None:
        """A try of the trial has failed: until another one begins, which may be late, it counts as failed."""
        self._failing.add(number)
        self._searcher.end(number, "failed")

    def goes_on(self, number: int) -> None:
        """The trial begins, or its next try."""
        if number in self._failing:
            self._failing.remove(number)
            self._searcher.restart(number)

    def restart(self, number: int) -> None:
        """The trial failed and runs again."""
        self._searcher.restart(number)

    def _starting_point(self) -> Config | None:
        while self._starts:
            config = self._starts.pop(0)
            if self._is_new(config):
                return config
        return None

    def _suggestion(self, number: int) -> Config | None:
        with suppress(NothingDrawn):  # the next draws are of another random stream
            for attempt in range(ATTEMPTS):
                config = self._searcher.suggest(number, attempt)
                if config is None or self._is_new(config):
                    return config
        return self._unseen(number)

    def _unseen(self, number: int) -> Config | None:
        """A new configuration if the searcher only repeats itself, or finds none that the constraint allows: a random
        one, or one of the rest of a finite space.

        Raises SpaceError if it would be the first of the search, and the constraint allows none of all draws.
        """
        generator = self._generator(_UNSEEN, number)
        found = self._random(generator)
        if found is not None:
            return found
        if self._size <= LARGEST_LISTED:
            rest = [config for config in self._space.grid() if self._is_new(config)]
            return rest[int(generator.integers(len(rest)))] if rest else None
        return None if self._seen else self._space.sample(generator)

    def _random(self, generator: np.random.Generator) -> Config | None:
        """The first random configuration that is new; None after too many that aren't."""
        repeated = 0
        for config in islice(self._space.draws({}, generator), RANDOM_DRAWS):
            if not self._space.allows(config):
                continue
            if self._space.key(config) not in self._seen:
                return config
            repeated += 1
            if repeated == RANDOM_ATTEMPTS:
                return None
        if self._size > LARGEST_LISTED:
            self.nothing_drawn = self._space.unrecordable(config) or NOTHING_DRAWN
        return None

    def _generator(self, stream: int, index: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(stream, index)))

    def _is_new(self, config: Config) -> bool:
        return self._space.key(config) not in self._seen and self._space.allows(config)


def _completed(space: Space, config: Config, generator: np.random.Generator) -> Config | None:
    """The configuration with missing values sampled; None if none is found that may be tried."""
    try:
        return space.complete(config, generator)
    except NothingDrawn:
        return None
