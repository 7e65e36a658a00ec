"""The base class of domains; the kinds are in `numeric`, `choices` and `functions`.

Users write them with the constructors of `tuner.space.constructors`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tuner.errors import SpaceError, shown
from tuner.space.values import in_order, is_ray_grid, is_writable, library_of, plain

Units = npt.NDArray[np.float64]
Conditions = tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Domain(ABC):
    """The values that one hyperparameter may take, as a declaration that holds no state.

    `conditions` are (other hyperparameter, its values under which this one is part of a configuration).
    """

    conditions: Conditions = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            try:
                object.__setattr__(self, part.name, plain(value))
            except RecursionError as error:
                raise SpaceError(
                    f"a domain needs values that don't contain themselves, got {shown(value)}; write them out"
                ) from error

    def when(self, **conditions: Any) -> Self:
        """The same domain, part of a configuration only if each named other has the value (or one of a list)."""
        if not conditions:
            raise SpaceError("when needs a condition, got none; write .when(optimizer='sgd')")
        added = tuple((name, _as_values(value)) for name, value in conditions.items())
        for name, values in added:
            if not values:
                raise SpaceError(f"when needs at least one value of {name!r}, got an empty list; name those that count")
            for value in values:
                if not is_writable(value):
                    raise SpaceError(f"when needs plain values, got {shown(value)} for {name!r}; use numbers or texts")
        return replace(self, conditions=self.conditions + added)

    @property
    def encodable(self) -> bool:
        """Whether values map to the unit interval and back."""
        return True

    @property
    def size(self) -> float:
        """Number of distinct values; infinite for a continuous domain."""
        return math.inf

    def values(self) -> list[Any]:
        """Every value of a finite domain, in order. Raises SpaceError for an infinite one."""
        raise SpaceError(
            f"a grid needs a finite set of values, got {self.describe()}; use choice, grid_search or a q… domain"
        )

    def sample(self, generator: np.random.Generator) -> Any:
        """A random value."""
        return self.decode(float(generator.random()))

    @abstractmethod
    def validate(self, name: str) -> None:
        """Raise SpaceError, naming the hyperparameter, if the declaration can't work."""

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Whether the value is one of the domain's."""

    @abstractmethod
    def coerce(self, value: Any) -> Any:
        """A contained value as the plain Python type that `sample` gives."""

    @abstractmethod
    def encode(self, value: Any) -> float:
        """Where the contained value lies in [0, 1]; nan if the domain is not encodable."""

    @abstractmethod
    def decode(self, unit: float) -> Any:
        """The value at `unit` in [0, 1]; values outside are clipped."""

    def snap(self, units: Units) -> Units:
        """`encode(decode(unit))` of units [n] in [0, 1]: each moved to where a value lies."""
        return np.array([self.encode(self.decode(unit)) for unit in units.tolist()])

    @abstractmethod
    def describe(self) -> str:
        """As the user wrote it: `loguniform(0.0001, 0.1)`."""


def contains_domain(value: Any) -> bool:
    """Whether a domain, ours or another library's, hides in a value."""
    if isinstance(value, Domain) or library_of(value) is not None or is_ray_grid(value):
        return True
    if isinstance(value, dict):
        return any(contains_domain(item) for item in value.values())
    return isinstance(value, list | tuple | set | frozenset) and any(contains_domain(item) for item in value)


def _as_values(value: Any) -> tuple[Any, ...]:
    return in_order(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
