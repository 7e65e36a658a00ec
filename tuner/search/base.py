"""The base classes of search algorithms: a declaration in the study file, and the searcher that it builds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuner.errors import SpaceError, shown
from tuner.space import Config, SampleFrom, Space
from tuner.space.mode import Mode

Floats = npt.NDArray[np.float64]
EndStatus = Literal["completed", "stopped", "failed"]


@dataclass(frozen=True)
class Problem:
    """The search problem that a search algorithm gets.

    `price_of` gives the second objective of a configuration, higher is better, if that is known before it is tried.
    `trials` is the largest number of trials, None for no limit; a trial reports after each of at most `max_epochs`
    epochs. `rungs` are the epochs at which early stopping compares trials, in order: values there are worth most.
    """

    space: Space
    mode: Mode = "max"
    seed: int = 0
    trials: int | None = None
    max_epochs: int = 1
    rungs: tuple[int, ...] = ()
    price_of: Callable[[Config], float | None] | None = field(default=None, compare=False)

    @property
    def sign(self) -> float:
        """The factor by which values of the metric are multiplied so that higher is better."""
        return 1.0 if self.mode == "max" else -1.0


class Searcher(ABC):
    """Proposes configurations for numbered trials and learns from their values; it doesn't know how trials are run.

    Everything random in a suggestion comes from the study's seed, the trial's number and the attempt, so that the same
    history gives the same suggestion in any process.
    """

    @abstractmethod
    def suggest(self, number: int, attempt: int = 0) -> Config | None:
        """A configuration for the trial `number`, another one for another attempt; None if there are no more."""

    def adopt(self, number: int, config: Config) -> None:  # noqa: B027 -- not all learn
        """The trial exists from now on with this configuration, suggested here or not."""

    def price(self, number: int, value: float) -> None:  # noqa: B027 -- see `SearchAlgorithm.takes_two_objectives`
        """The trial's value of the second objective, of which higher is better; known before its first value."""

    def observe(self, number: int, epoch: int, value: float) -> None:  # noqa: B027
        """One epoch's value of the metric, finite, as the user reports it."""

    def end(self, number: int, status: EndStatus) -> None:  # noqa: B027
        """The trial is over."""

    def restart(self, number: int) -> None:  # noqa: B027
        """The trial failed, which ended it, and runs again; epochs that were observed are not observed again."""

    def expected_improvement(self, number: int) -> float | None:
        """The expected improvement of trial `number` on the best, in units of the metric; None if unknown."""
        return None


@dataclass(frozen=True)
class SearchAlgorithm(ABC):
    """The declaration of how configurations are chosen; `build` makes the object that has a state."""

    @property
    def name(self) -> str:
        """The algorithm's name, as in the study file."""
        return type(self).__name__

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules that `build` imports and that load slowly, so that a driver can load them while it waits."""
        return ()

    @property
    def expects_improvement(self) -> bool:
        """Whether its searcher can say what improvement it expects of the next trial."""
        return False

    @property
    def takes_two_objectives(self) -> bool:
        """Whether its searcher looks for the front of both objectives of a study that has two."""
        return False

    @property
    def learns(self) -> bool:
        """Whether configurations get better by what earlier trials reported."""
        return True

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise StudyError for a space that this algorithm can't search."""

    @abstractmethod
    def build(self, problem: Problem) -> Searcher:
        """The searcher for one search."""


def require_finite(number: int, epoch: int, value: float) -> None:
    """Raise ValueError for a value that is NaN or infinite, from which a search can't learn."""
    if not math.isfinite(value):
        raise ValueError(
            f"a search needs finite values, got {shown(value)} from trial {number} at epoch {epoch}; "
            "end the trial as failed instead"
        )


LARGEST_COUNT = 1_000_000
COUNT_RULE = f"a whole number from 1 to {LARGEST_COUNT:,}"


def is_count(value: object) -> bool:
    """Whether the value follows COUNT_RULE."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_COUNT


def check_model_based(name: str, space: Space) -> None:
    """Raise SpaceError for what a model of the space can't hold: grids, and functions of the configuration."""
    for dimension, domain in space.dimensions.items():
        if dimension in space.grid_dimensions:
            raise SpaceError(
                f"{name} chooses values itself and can't take {domain.describe()} for {dimension!r}; "
                "use choice([...]), or search=Grid()"
            )
        if isinstance(domain, SampleFrom):
            raise SpaceError(
                f"{name} learns from values it chose and can't take {domain.describe()} for {dimension!r}; "
                "compute it inside the trial, or use search=Random()"
            )
