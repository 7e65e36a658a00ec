"""Configurations as points of the unit cube, a column for each dimension, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.space.conditions import ConditionGraph, is_among
from tuner.space.domain import Domain, Units


class UnitCube:
    """The unit cube of a space's dimensions; a column is nan where its dimension is inactive or can't be encoded."""

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
        values: dict[str, list[Any]] = {}
        active: dict[str, npt.NDArray[np.bool_]] = {}
        asked = {other for conditions in self._conditions.of.values() for other, _ in conditions}
        for column, (name, domain) in enumerate(self._dimensions.items()):
            active[name] = np.full(len(snapped), domain.encodable)
            for other, allowed in self._conditions.of[name]:
                if other in self._constants:
                    active[name] &= is_among(self._constants[other], allowed)
                else:
                    active[name] &= active[other] & np.array([is_among(v, allowed) for v in values[other]], dtype=bool)
            if domain.encodable:
                snapped[:, column] = domain.snap(snapped[:, column])
            if name in asked:
                values[name] = [domain.decode(unit) for unit in snapped[:, column].tolist()]
            snapped[~active[name], column] = math.nan
        return snapped
