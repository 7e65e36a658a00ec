"""Drives proposals over a function, one trial at a time, one value per trial."""

from collections.abc import Callable, Mapping
from typing import Any

from tuner.search import Problem, Proposals, SearchAlgorithm
from tuner.space import Config, Space
from tuner.space.mode import Mode

Objective = Callable[[Config], float]


def propose(
    search: SearchAlgorithm,
    space: Space | Mapping[str, Any],
    *,
    mode: Mode = "min",
    seed: int = 0,
    trials: int | None = None,
    starting_points: list[Config] | None = None,
) -> Proposals:
    space = space if isinstance(space, Space) else Space(space)
    search.check(space)
    problem = Problem(space, mode=mode, seed=seed, trials=trials)
    return Proposals(problem, search.build(problem), starting_points=starting_points or [])


def run(proposals: Proposals, objective: Objective, trials: int, *, first: int = 0) -> list[Config]:
    """The configurations of at most so many trials, each told its value before the next is asked for."""
    configs: list[Config] = []
    for number in range(first, first + trials):
        config = proposals.suggest(number)
        if config is None:
            break
        configs.append(config)
        proposals.observe(number, 1, objective(config))
        proposals.end(number, "completed")
    return configs
