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

    @property
    def _step(self) -> float | None:
        """The distance between values; None if they are continuous."""
        return self.q

    @abstractmethod
    def _steps(self) -> tuple[int, int]:
        """First and last multiple of the step between the bounds."""

    def _edges(self) -> tuple[float, float]:
        """The numbers at 0 and 1 of the unit interval.

        With steps they are half a step beyond the first and last value: each value has the numbers that are nearest to
        it, so all have equal shares of a linear scale, and value v of a logarithmic one log((v + q/2) / (v - q/2)).
        """
        if self._step is None:
            return self.low, self.high
        first, last = self._steps()
        return (first - 0.5) * self._step, (last + 0.5) * self._step

    @property
    def size(self) -> float:
        if self._step is None:
            return math.inf
        first, last = self._steps()
        return last - first + 1

    def values(self) -> list[Any]:
        if self._step is None:
            return super().values()
        first, last = self._steps()
        return [self.coerce(steps * self._step) for steps in range(first, last + 1)]

    def encode(self, value: Any) -> float:
        bottom, top = map(self._scale, self._edges())
        return min(max((self._scale(float(value)) - bottom) / (top - bottom), 0.0), 1.0)

    def decode(self, unit: float) -> Any:
        value = self.number_at(min(max(unit, 0.0), 1.0))
        if self._step is None:
            return min(max(float(value), float(self.low)), float(self.high))
        first, last = self._steps()
        return self.coerce(min(max(math.floor(value / self._step + 0.5), first), last) * self._step)

    def snap(self, units: Units) -> Units:
        if self._step is None:
            return units
        bottom, top = map(self._scale, self._edges())
        scaled = bottom + units * (top - bottom)
        steps = np.floor((np.exp(scaled) if self.log else scaled) / self._step + 0.5).clip(*self._steps())
        values = steps * self._step
        return np.asarray((((np.log(values) if self.log else values) - bottom) / (top - bottom)).clip(0, 1))

    def number_at(self, unit: float) -> float:
        """The number at `unit` of the scale, ignoring steps; `unit` may be below 0 or above 1."""
        bottom, top = map(self._scale, self._edges())
        value = bottom + unit * (top - bottom)
        return math.exp(value) if self.log else value


@dataclass(frozen=True)
class Float(_Range):
    """Real numbers."""

    _linear_kind: ClassVar[str] = "uniform"

    def _check_step(self, kind: str, q: float, name: str) -> None:
        super()._check_step(kind, q, name)
        for bound, value in (("low", self.low), ("high", self.high)):
            steps = value / q
            if not math.isclose(steps, round(steps), abs_tol=1e-9) or (self.log and round(steps) < 1):
                low, high = math.ceil(self.low / q - 1e-9), math.floor(self.high / q + 1e-9)  # no wider than meant
                low = max(low, 1) if self.log else low
                nearest = clean_multiple(low if bound == "low" else high, q)
                fix = f"{bound}={nearest!r}" if low < high else "a smaller q"
                raise SpaceError(
                    f"{kind} needs bounds that are multiples of q, got {bound}={value!r} with q={q!r} for {name!r}; "
                    f"use {fix}"
                )

    def _steps(self) -> tuple[int, int]:
        step = self.q or 1
        return round(self.low / step), round(self.high / step)

    def contains(self, value: Any) -> bool:
        if not is_number(value):
            return False
        if self.q is None:
            return bool(self.low <= value <= self.high)
        first, last = self._steps()
        step = round(value / self.q)
        return first <= step <= last and math.isclose(value / self.q, step, abs_tol=1e-6)

    def coerce(self, value: Any) -> float:
        return _real(value, self.q)


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

    @property
    def _step(self) -> int:
        return int(self.q or 1)

    def _steps(self) -> tuple[int, int]:
        return -(-self.low // self._step), self.high // self._step

    def contains(self, value: Any) -> bool:
        if not is_number(value) or value != int(value) or not self.low <= value <= self.high:
            return False
        return int(value) % self._step == 0

    def coerce(self, value: Any) -> int:
        return int(value)


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
        return _real(value, self.q)

    def encode(self, value: Any) -> float:
        return NormalDist(self.mean, self.sd).cdf(float(value))

    def decode(self, unit: float) -> float:
        return self.coerce(NormalDist(self.mean, self.sd).inv_cdf(min(max(unit, _EDGE), 1 - _EDGE)))

    def describe(self) -> str:
        return _call("randn", self.mean, self.sd) if self.q is None else _call("qrandn", self.mean, self.sd, self.q)


def _real(value: Any, q: float | None) -> float:
    """The number, as a clean multiple of the step if there is one."""
    return float(value) + 0.0 if q is None else clean_multiple(round(float(value) / q), q)  # no negative zero


def _call(name: str, *arguments: Any) -> str:
    return f"{name}({', '.join(map(_shortest, arguments))})"


def _shortest(value: Any) -> str:
    """A float without a needless .0 and with all of its digits; anything else by its repr."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)
