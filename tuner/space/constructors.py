"""The domains as users write them.

Names, argument order and bounds are Ray Tune's: `randint` leaves `high` out, and so does `qrandint` in steps of 1; in
longer steps it includes `high`. Numbers of numpy become Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from tuner.errors import SpaceError, shown
from tuner.space.choices import Choice, GridSearch
from tuner.space.functions import SampleFrom
from tuner.space.numeric import Float, Integer, Normal
from tuner.space.values import in_order, is_number, plain

MOST_OPTIONS = 100_000  # of one hyperparameter


def uniform(low: float, high: float) -> Float:
    """Real numbers, evenly from `low` to `high`."""
    return Float(low, high)


def quniform(low: float, high: float, q: float) -> Float:
    """Multiples of `q` from `low` to `high`, both included, each equally likely."""
    return Float(low, high, q=q)


def loguniform(low: float, high: float, base: float = 10) -> Float:
    """Real numbers whose logarithm is even from `low` > 0 to `high`."""
    return Float(low, high, log=True)


def qloguniform(low: float, high: float, q: float, base: float = 10) -> Float:
    """Multiples of `q` from `low` > 0 to `high`, both included, each with what is nearest to it of `loguniform`."""
    return Float(low, high, log=True, q=q)


def randint(low: int, high: int) -> Integer:
    """Whole numbers from `low` to `high` - 1."""
    return Integer(low, last_integer(high))


def qrandint(low: int, high: int, q: int = 1) -> Integer:
    """Multiples of `q` from `low` to `high`, both included; with q=1 to `high` - 1, as in Ray."""
    return Integer(low, last_integer(high, q), q=q)


def lograndint(low: int, high: int, base: float = 10) -> Integer:
    """Whole numbers from `low` > 0 to `high` - 1, even on a logarithmic scale."""
    return Integer(low, last_integer(high), log=True)


def qlograndint(low: int, high: int, q: int, base: float = 10) -> Integer:
    """As `qrandint`, from `low` > 0, about even on a logarithmic scale."""
    return Integer(low, last_integer(high, q), log=True, q=q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """Normally distributed numbers."""
    return Normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """Normally distributed multiples of `q`."""
    return Normal(mean, sd, q)


def choice(values: Iterable[Any]) -> Choice:
    """One of the values."""
    return Choice(_listed("choice", values))


def grid_search(values: Iterable[Any]) -> GridSearch:
    """Every one of the values."""
    return GridSearch(_listed("grid_search", values))


def sample_from(function: Callable[..., Any]) -> SampleFrom:
    """The result of `function(config)`, or Ray's `function(spec)` with `spec.config`, for what was sampled before."""
    return SampleFrom(function)


def last_integer(high: int, q: int | None = None) -> int:
    """The last number below `high`, or `high` itself in steps longer than 1.

    Anything but a whole number is returned unchanged: `validate` refuses it.
    """
    high = plain(high) if is_number(high) else high
    left_out = q in (None, 1) and isinstance(high, int) and not isinstance(high, bool)
    return high - 1 if left_out else high


def _listed(kind: str, values: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise SpaceError(f"{kind} needs a list of values, got {shown(values)}; write {kind}([{shown(values)}])")
    if isinstance(values, set | frozenset):
        return in_order(values)
    listed = tuple(islice(values, MOST_OPTIONS + 1))  # a range may be larger than memory
    if len(listed) > MOST_OPTIONS:
        raise SpaceError(f"{kind} takes up to {MOST_OPTIONS:,} values, got more of {shown(values)}; use randint(...)")
    return listed
