"""Hyperparameters that are numbers: on a linear or logarithmic scale, or normally distributed."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from tuner.errors import SpaceError, shown
from tuner.space.domain import Domain, Units
from tuner.space.values import clean_multiple, is_number

_EDGE = 1e-9  # a normal's quantiles at 0 and 1 are infinite


@dataclass(frozen=True)
class _Range(Domain):
    """Numbers from `low` to `high`, both included, on a linear or logarithmic scale, in steps of `q` if given."""

    low: float
    high: float
    log: bool = False
    q: float | None = None
    _linear_kind: ClassVar[str]

    def validate(self, name: str) -> None:
        kind = self._kind
        for bound, value in (("low", self.low), ("high", self.high)):
            self._check_bound(kind, bound, value, name)
        if self.log and self.low <= 0:
            raise SpaceError(
                f"{kind} needs low > 0, got low={self.low!r} for {name!r}; use {kind.replace('log', '')} or raise low"
            )
        if not self.low < self._written_high:
            raise SpaceError(
                f"{kind} needs low < high, got low={self.low!r} and high={self._written_high!r} for {name!r}; "
                "swap or widen them"
            )
        if self.q is not None:
            self._check_step(kind, self.q, name)

    def describe(self) -> str:
        return _call(self._kind, self.low, self._written_high, *(() if self.q is None else (self.q,)))

    @property
    def _kind(self) -> str:
        return ("q" if self.q is not None else "") + ("log" if self.log else "") + self._linear_kind

    @property
    def _written_high(self) -> float:
        return self.high

    def _check_bound(self, kind: str, bound: str, value: Any, name: str) -> None:
        if not is_number(value):
            raise SpaceError(
                f"{kind} needs a finite number as {bound}, got {shown(value)} for {name!r}; write a number"
            )

    def _check_step(self, kind: str, q: float, name: str) -> None:
        if not is_number(q) or q <= 0:
            raise SpaceError(f"{kind} needs q > 0, got q={shown(q)} for {name!r}; use the step between values")

    def _scale(self, value: float) -> float:
        return math.log(value) if self.log else value

    def _interpolate(self, unit: float, low: float, high: float) -> float:
        bottom, top = self._scale(low), self._scale(high)
        value = bottom + min(max(unit, 0.0), 1.0) * (top - bottom)
        return math.exp(value) if self.log else value

    @abstractmethod
    def _steps(self) -> tuple[int, int]:
        """First and last multiple of the step."""

    def _edges(self) -> tuple[float, float]:
        """The numbers at 0 and 1 of the unit interval."""
        return self.low, self.high

    def snap(self, units: Units) -> Units:
        if self.size == math.inf:
            return units
        low, high = self._edges()
        bottom, top = self._scale(low), self._scale(high)
        scaled = bottom + units * (top - bottom)
        step = self.q or 1
        multiples = np.floor((np.exp(scaled) if self.log else scaled) / step + 0.5).clip(*self._steps()) * step
        return np.asarray((((np.log(multiples) if self.log else multiples) - bottom) / (top - bottom)).clip(0, 1))

    def number_at(self, unit: float) -> float:
        """The number at `unit` of the scale, ignoring steps; `unit` may be below 0 or above 1."""
        low, high = self._edges()
        bottom, top = self._scale(low), self._scale(high)
        value = bottom + unit * (top - bottom)
        return math.exp(value) if self.log else value

    def _position(self, value: float, low: float, high: float) -> float:
        bottom, top = self._scale(low), self._scale(high)
        return min(max((self._scale(value) - bottom) / (top - bottom), 0.0), 1.0)


@dataclass(frozen=True)
class Float(_Range):
    """Real numbers."""

    _linear_kind: ClassVar[str] = "uniform"

    def _check_step(self, kind: str, q: float, name: str) -> None:
        super()._check_step(kind, q, name)
        for bound, value in (("low", self.low), ("high", self.high)):
            steps = value / q
            if not math.isclose(steps, round(steps), abs_tol=1e-9):
                nearest = max(round(steps), 1) if self.log else round(steps)
                raise SpaceError(
                    f"{kind} needs bounds that are multiples of q, got {bound}={value!r} with q={q!r} for {name!r}; "
                    f"use {bound}={clean_multiple(nearest, q)!r}"
                )

    def _steps(self) -> tuple[int, int]:
        """First and last multiple of q."""
        step = self.q or 1
        return round(self.low / step), round(self.high / step)

    @property
    def size(self) -> float:
        if self.q is None:
            return math.inf
        first, last = self._steps()
        return last - first + 1

    def values(self) -> list[float]:
        if self.q is None:
            return super().values()
        first, last = self._steps()
        return [clean_multiple(step, self.q) for step in range(first, last + 1)]

    def contains(self, value: Any) -> bool:
        if not is_number(value):
            return False
        if self.q is None:
            return bool(self.low <= value <= self.high)
        first, last = self._steps()
        step = round(value / self.q)
        return first <= step <= last and math.isclose(value / self.q, step, abs_tol=1e-6)

    def coerce(self, value: Any) -> float:
        if self.q is None:
            return float(value) + 0.0  # no negative zero
        return clean_multiple(round(float(value) / self.q), self.q)

    def encode(self, value: Any) -> float:
        return self._position(float(value), self.low, self.high)

    def decode(self, unit: float) -> float:
        value = self._interpolate(unit, self.low, self.high)
        if self.q is not None:
            first, last = self._steps()
            return clean_multiple(min(max(round(value / self.q), first), last), self.q)
        return min(max(float(value), float(self.low)), float(self.high))


@dataclass(frozen=True)
class Integer(_Range):
    """Whole numbers; `high` is included here, whatever the constructor's convention."""

    low: int
    high: int
    _linear_kind: ClassVar[str] = "randint"

    @property
    def _written_high(self) -> int:
        left_out = self.q in (None, 1) and isinstance(self.high, int)
        return self.high + 1 if left_out else self.high

    def _check_bound(self, kind: str, bound: str, value: Any, name: str) -> None:
        super()._check_bound(kind, bound, value, name)
        if not isinstance(value, int):
            raise SpaceError(
                f"{kind} needs whole numbers, got {bound}={shown(value)} for {name!r}; use "
                f"{'q' if self.q else ''}uniform or round it"
            )

    def _check_step(self, kind: str, q: float, name: str) -> None:
        super()._check_step(kind, q, name)
        if q != int(q):
            raise SpaceError(
                f"{kind} needs a whole number as q, got q={shown(q)} for {name!r}; use quniform or round it"
            )
        first, last = self._steps()
        if first > last:
            raise SpaceError(
                f"{kind} needs a multiple of q from low to high, got low={self.low!r} and high={self.high!r} with "
                f"q={q!r} for {name!r}; widen them or lower q"
            )

    def _steps(self) -> tuple[int, int]:
        """First and last multiple of q between the bounds."""
        step = int(self.q or 1)
        return -(-self.low // step), self.high // step

    @property
    def size(self) -> int:
        first, last = self._steps()
        return last - first + 1

    def values(self) -> list[int]:
        first, last = self._steps()
        return [int(step * (self.q or 1)) for step in range(first, last + 1)]

    def contains(self, value: Any) -> bool:
        if not is_number(value) or value != int(value) or not self.low <= value <= self.high:
            return False
        return int(value) % int(self.q or 1) == 0

    def coerce(self, value: Any) -> int:
        return int(value)

    def encode(self, value: Any) -> float:
        return self._position(float(value), *self._edges())

    def decode(self, unit: float) -> int:
        step = int(self.q or 1)
        first, last = self._steps()
        value = self._interpolate(unit, *self._edges())
        return min(max(math.floor(value / step + 0.5), first), last) * step

    def _edges(self) -> tuple[float, float]:
        """Half a step beyond the first and last value, so that every value has its own bin."""
        step = int(self.q or 1)
        first, last = (multiple * step for multiple in self._steps())
        return (max(first - step / 2, first / 2) if self.log else first - step / 2), last + step / 2


@dataclass(frozen=True)
class Normal(Domain):
    """Normally distributed numbers, in steps of `q` if given; the unit interval is its distribution function."""

    mean: float
    sd: float
    q: float | None = None

    def validate(self, name: str) -> None:
        kind = "randn" if self.q is None else "qrandn"
        if not is_number(self.mean):
            raise SpaceError(f"{kind} needs a finite mean, got mean={shown(self.mean)} for {name!r}; write a number")
        if not is_number(self.sd) or self.sd <= 0:
            raise SpaceError(f"{kind} needs sd > 0, got sd={shown(self.sd)} for {name!r}; use a constant for no spread")
        if self.q is not None and (not is_number(self.q) or self.q <= 0):
            raise SpaceError(f"{kind} needs q > 0, got q={shown(self.q)} for {name!r}; use the step between values")

    def contains(self, value: Any) -> bool:
        if not is_number(value):
            return False
        return self.q is None or math.isclose(value / self.q, round(value / self.q), abs_tol=1e-6)

    def coerce(self, value: Any) -> float:
        if self.q is None:
            return float(value) + 0.0  # no negative zero
        return clean_multiple(round(float(value) / self.q), self.q)

    def encode(self, value: Any) -> float:
        return NormalDist(self.mean, self.sd).cdf(float(value))

    def decode(self, unit: float) -> float:
        return self.coerce(NormalDist(self.mean, self.sd).inv_cdf(min(max(unit, _EDGE), 1 - _EDGE)))

    def describe(self) -> str:
        return _call("randn", self.mean, self.sd) if self.q is None else _call("qrandn", self.mean, self.sd, self.q)


def _call(name: str, *arguments: Any) -> str:
    return f"{name}({', '.join(map(_shortest, arguments))})"


def _shortest(value: Any) -> str:
    """A float without a needless .0 and with all of its digits; anything else by its repr."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)
