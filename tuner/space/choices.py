"""Hyperparameters that are one of a list of values."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tuner.errors import SpaceError, shown
from tuner.space.domain import Domain, Units, contains_domain
from tuner.space.values import canonical, has_named, is_recordable, is_writable, recorded, same, unrecordable, value_of


@dataclass(frozen=True)
class Choice(Domain):
    """One of the listed values, all equally likely; the unit interval has a bin of equal width for each."""

    options: tuple[Any, ...]
    _kind: ClassVar[str] = "choice"

    def validate(self, name: str) -> None:
        kind = self._kind
        if not self.options:
            raise SpaceError(f"{kind} needs at least one value, got an empty list for {name!r}; list what may be tried")
        for value in self.options:
            if is_writable(value) and contains_domain(value):
                raise SpaceError(
                    f"{kind} needs plain values, got a domain inside {shown(value)} for {name!r}; "
                    "give the inner hyperparameter a name of its own and .when(...)"
                )
            if not is_recordable(value):
                raise SpaceError(unrecordable(kind, value, name))
        for index, value in enumerate(self.options):
            if self._positions[canonical(value)] < index:
                raise SpaceError(f"{kind} needs distinct values, got {shown(value)} twice for {name!r}; remove one")
        if len({canonical(recorded(option)) for option in self.options}) < len(self.options):
            raise SpaceError(f"{kind} needs other texts than its functions' names, got both for {name!r}; remove one")

    @property
    def size(self) -> int:
        return len(self.options)

    def values(self) -> list[Any]:
        return list(self.options)

    def index(self, value: Any) -> int | None:
        """The position in the list of the value, or of what users and files write in its place; None without one."""
        text = canonical(value)
        exact = self._positions.get(text, self._loosely.get(text))
        if exact is not None:
            return exact
        return next((index for index, option in enumerate(self.options) if same(value, option)), None)

    @cached_property
    def _positions(self) -> dict[str, int]:
        """The first position of each value, by its canonical text."""
        return {canonical(option): index for index, option in reversed(list(enumerate(self.options)))}

    @cached_property
    def _loosely(self) -> dict[str, int]:
        """The same by how users write them without Python, such as `inf`; without those that aren't the only ones."""
        texts = [canonical(value_of(recorded(option), loosely=True)) for option in self.options]
        counts = Counter(texts)
        return {text: index for index, text in enumerate(texts) if counts[text] == 1}

    def contains(self, value: Any) -> bool:
        return self.index(value) is not None

    def coerce(self, value: Any) -> Any:
        index = self.index(value)
        return value if index is None else self.options[index]

    def encode(self, value: Any) -> float:
        index = self.index(value)
        return math.nan if index is None else (index + 0.5) / len(self.options)

    def snap(self, units: Units) -> Units:
        return np.asarray((np.floor(units * self.size).clip(0, self.size - 1) + 0.5) / self.size)

    def decode(self, unit: float) -> Any:
        return self.options[min(int(min(max(unit, 0.0), 1.0) * len(self.options)), len(self.options) - 1)]

    def describe(self) -> str:
        return f"{self._kind}([{', '.join(map(_text, self.options))}])"


@dataclass(frozen=True)
class GridSearch(Choice):
    """A choice of which `Grid` tries every value; a random search draws from it."""

    _kind: ClassVar[str] = "grid_search"


def _text(option: Any) -> str:
    """An option as a study file has it; with functions and classes by their names."""
    return canonical(option) if has_named(option) else repr(option)
