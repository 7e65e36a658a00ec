"""Finds the number of trials at once on a device that trains most images per second, from trials' stays there."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_GAIN = 1.05  # the least gain in images per second that makes more trials at once worth it
EPOCHS_COMPARED = 2  # at least, before a number of trials at once is judged; and one epoch of each of the trials
IDLE, BUSY = 0.5, 0.9  # shares of the time that a device is busy: more trials surely help below, and hardly above

UNSTEADY = 0.25  # an epoch only counts if the number of trials on its device changed by no more than this share


@dataclass
class Stay:
    """A running trial; `since` is when its epoch began, and `before` the trial-seconds of its device until then.

    `least` and `most` are the numbers of trials that the device has had since then.
    """

    device: str
    alike: str
    predicted_bytes: float | None
    since: float
    before: float
    epochs: int = 0
    least: int = 0
    most: int = 0

    def begin_epoch(self, now: float, before: float, count: int) -> None:
        """Count the trials on the device again."""
        self.since, self.before, self.least, self.most = now, before, count, count

    def at_once(self, now: float, trial_seconds: float) -> int | None:
        """Trials on the device throughout the epoch, None if their number changed too much to say."""
        mean = (trial_seconds - self.before) / (now - self.since) if now > self.since else 0.0
        steady = self.most - self.least <= max(1.0, mean * UNSTEADY) and abs(mean - round(mean)) <= UNSTEADY
        return round(mean) if steady and mean >= UNSTEADY else None


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
        busy = _utilisation(measured[best])
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


def _utilisation(rates: Sequence[Rate]) -> float:
    """Mean share of busy time: in later epochs of workers if there are any, as a first one waits for libraries."""
    known = [rate for rate in rates if math.isfinite(rate.utilisation)]
    return _mean([rate.utilisation for rate in [rate for rate in known if not rate.unit[1]] or known])


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
