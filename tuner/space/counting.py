"""How many configurations a finite space has, and all of them one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuner.space.conditions import ConditionGraph
from tuner.space.domain import Domain
from tuner.space.values import canonical

_ANOTHER = object()  # stands for any value that no condition names


class FiniteSpace:
    """Dimensions that are all finite, with their conditions; and constants."""

    def __init__(
        self, dimensions: Mapping[str, Domain], conditions: ConditionGraph, constants: Mapping[str, Any]
    ) -> None:
        self._dimensions, self._conditions, self._constants = dimensions, conditions, constants

    def count(self) -> int:
        """Distinct configurations."""
        return math.prod(self._count(group, self._constants) for group in self._linked_groups())

    def combinations(self) -> Iterator[dict[str, Any]]:
        """All of them by dotted names, inactive dimensions left out."""
        return self._combinations(list(self._dimensions), dict(self._constants))

    def _combinations(self, names: list[str], flat: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """All combinations of the named dimensions' values, added to `flat`."""
        if not names:
            yield flat
            return
        name, rest = names[0], names[1:]
        if not self._conditions.is_active(name, flat):
            yield from self._combinations(rest, flat)
            return
        for value in self._dimensions[name].values():
            yield from self._combinations(rest, {**flat, name: value})

    def _linked_groups(self) -> list[list[str]]:
        """The dimensions in groups that no condition crosses, each in order: their counts multiply."""
        groups: list[list[str]] = []
        for name in self._dimensions:
            others = {other for other, _ in self._conditions.of[name]}
            linked = [group for group in groups if others & set(group)]
            groups = [group for group in groups if group not in linked]
            groups.append([*(member for group in linked for member in group), name])
        return groups

    def _count(self, names: Sequence[str], flat: Mapping[str, Any]) -> int:
        """The number of configurations that begin with `flat`; values that no condition names are counted together."""
        if not names:
            return 1
        name, rest = names[0], names[1:]
        if not self._conditions.is_active(name, flat):
            return self._count(rest, flat)
        return sum(times * self._count(rest, {**flat, name: value}) for value, times in self._told_apart(name))

    def _told_apart(self, name: str) -> list[tuple[Any, int]]:
        """The values of a dimension that conditions mention, once each; then one for all others, with their number."""
        domain = self._dimensions[name]
        asked = {canonical(value): value for value in map(domain.coerce, self._conditions.asked_of(name))}
        others = int(domain.size) - len(asked)
        return [(value, 1) for value in asked.values()] + ([(_ANOTHER, others)] if others else [])
