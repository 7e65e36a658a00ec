"""Finds the number of trials at once on a device that trains most images per second, from measurements."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_GAIN = 1.05  # the least gain in images per second that makes more trials at once worth it
EPOCHS_COMPARED = 2  # at least, before a number of trials at once is judged; and one epoch of each of the trials
IDLE, BUSY = 0.5, 0.98  # shares of the time that a device is busy: more trials surely help below, and hardly above


@dataclass(frozen=True)
class Rate:
    """Images per second of one trial in one epoch, and the share of the time that its device was busy."""

    unit: tuple[str, bool]  # only the same is compared: similar trials, in a worker's first epoch or a later one
    images_per_second: float
    utilisation: float = math.nan


def trials_at_once(measured: Mapping[int, Sequence[Rate]], at_first: int, most: int, *, overlaps: bool = True) -> int:
    """The number of trials that a device should have, from the measurements with each number.

    It is doubled as long as all trials together then train at least 5 % more images per second; if they don't, the
    number halfway is tried before it goes back. A device that is busy all the time is left as it is where processes
    take turns on it, and one that is busy for less than half of the time gets more trials at once.
    """
    best = min(at_first, most)
    while best < most and best in measured:
        busy = _mean([rate.utilisation for rate in measured[best] if math.isfinite(rate.utilisation)])
        if busy >= BUSY and not overlaps:
            return best
        if not _is_judged(measured, best) and not busy < IDLE:
            return best
        doubled = min(2 * best, most)
        tried = max((number for number in measured if best < number <= doubled), default=doubled)
        if not _is_judged(measured, tried):
            return doubled
        if _gain(measured, best, tried) < LEAST_GAIN:
            return _halfway(measured, best, tried)
        if tried < doubled:  # there was no memory to try more
            return doubled
        best = tried
    return best


def _is_judged(measured: Mapping[int, Sequence[Rate]], number: int) -> bool:
    return len(measured.get(number, ())) >= max(EPOCHS_COMPARED, number)


def _halfway(measured: Mapping[int, Sequence[Rate]], best: int, tried: int) -> int:
    """The number halfway between a good and a bad one, unless it was tried and is bad, too."""
    between = (best + tried) // 2
    if between == best or not _is_judged(measured, between):
        return between
    return between if _gain(measured, best, between) >= LEAST_GAIN else best


def _gain(measured: Mapping[int, Sequence[Rate]], before: int, after: int) -> float:
    """Ratio of the images per second of all trials together: by similar trials, or by all if none are similar."""
    old, new = _by_unit(measured[before]), _by_unit(measured[after])
    pairs = [(old[unit], new[unit]) for unit in sorted(old.keys() & new.keys())]
    pairs = pairs or [(_mean(list(old.values())), _mean(list(new.values())))]
    slower = math.exp(_mean([then - now for now, then in pairs]))
    return slower * after / before


def _by_unit(rates: Sequence[Rate]) -> dict[tuple[str, bool], float]:
    """Mean logarithm of the images per second of trials that can be compared."""
    found: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for rate in rates:
        found[rate.unit].append(math.log(rate.images_per_second))
    return {unit: _mean(values) for unit, values in found.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
