"""The dimensions of a space together: their configurations counted and listed, and as points of the unit cube."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.space.conditions import ConditionGraph, is_among
from tuner.space.domain import Domain, Units
from tuner.space.values import canonical

_ANOTHER = object()  # stands for any value that no condition names


class Dimensions:
    """The dimensions of a space with their conditions, and its constants; configurations are by dotted names.

    The unit cube has a column for each dimension; it is nan where a dimension is inactive or can't be encoded.
    """

    def __init__(
        self, dimensions: Mapping[str, Domain], conditions: ConditionGraph, constants: Mapping[str, Any]
    ) -> None:
        self._dimensions, self._conditions, self._constants = dimensions, conditions, constants

    def encode(self, flat: Mapping[str, Any]) -> Units:
        """The point [dimensions] of a configuration given by dotted names."""
        active = self._conditions.active(flat)
        columns = [
            domain.encode(flat[name]) if name in flat and name in active else math.nan
            for name, domain in self._dimensions.items()
        ]
        return np.array(columns, dtype=float)

    def decode(self, unit: Sequence[float] | Units) -> dict[str, Any]:
        """The configuration at a point [dimensions], by dotted names; names whose column is nan are left out."""
        flat = dict(self._constants)
        for (name, domain), column in zip(self._dimensions.items(), unit, strict=True):
            if domain.encodable and not math.isnan(column) and self._conditions.is_active(name, flat):
                flat[name] = domain.decode(float(column))
        return flat

    def snap(self, units: Units) -> Units:
        """Points [n, dimensions], each as `encode(decode(unit))` would have it, many at once."""
        snapped: Units = np.clip(np.array(units, dtype=float), 0.0, 1.0)
        values: dict[str, tuple[list[Any], npt.NDArray[np.int64]]] = {}  # distinct ones, and which each point has
        active: dict[str, npt.NDArray[np.bool_]] = {}
        asked = {other for conditions in self._conditions.of.values() for other, _ in conditions}
        for column, (name, domain) in enumerate(self._dimensions.items()):
            active[name] = np.full(len(snapped), domain.encodable)
            for other, allowed in self._conditions.of[name]:
                if other in self._constants:
                    active[name] &= is_among(self._constants[other], allowed)
                else:
                    distinct, which = values[other]
                    among = np.array([is_among(value, allowed) for value in distinct], dtype=bool)
                    active[name] &= active[other] & among[which]
            if domain.encodable:
                snapped[:, column] = domain.snap(snapped[:, column])
            if name in asked:
                places, which = np.unique(snapped[:, column], return_inverse=True)
                values[name] = [domain.decode(place) for place in places.tolist()], which
            snapped[~active[name], column] = math.nan
        return snapped

    def count(self) -> int:
        """Distinct configurations of dimensions that are all finite."""
        return math.prod(self._count(group, self._constants) for group in self._linked_groups())

    def combinations(self) -> Iterator[dict[str, Any]]:
        """All of these, inactive dimensions left out."""
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
