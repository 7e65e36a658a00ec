"""The value by which a trial is compared, and which of its networks is used for it.

The highest of several noisy values is too high, and the more values there are, the more so: a search that takes the
trial with the highest value at any epoch takes a lucky one. So the worth of a trial that was trained in full is a mean
of its last values: the best of the means of the last two, three, and so on up to half of them; its last network stands
for it. Isotonic regression estimates the end of a rising curve in this way (Ayer et al. 1955), but also allows the last
value alone: a flat noisy curve is averaged, and a curve that still rises isn't held back by its earlier values. If the
values clearly became worse after the best one, as in overfitting, the worth is the mean of the best value and its
neighbours, and the best one's network stands for the trial. What this gains is in `docs/explanation/measured.md`.

A loss whose late values differ by factors bends so much that noise can't be told from it. So all of this is done with
its logarithms, and a mean is a geometric one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

FEWEST = 4  # values that are needed to tell noise from change
FEWEST_OF_AN_ERROR = 9  # values that are needed to estimate the noise well enough to show it
CLEAR = 2.0  # standard errors by which values are clearly worse
FEWEST_IN_A_MEAN = 2
BESIDE = 3  # values in the mean around the best one
FACTOR = 3.0  # between a loss's late values, without the lowest and the highest: from it on logarithms are compared
ROUNDING = 1e-12  # of values that are shares or logarithms: a smaller bend is one of computing
# The median of |a - 2b + c| of three neighbours whose errors are normal with standard deviation 1.
MEDIAN_BEND = 0.6745 * math.sqrt(6)


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of one trial.

    `epoch` is the one whose network stands for the trial, `reported` the value reported after it. `value` is what
    trials are compared by: the mean over the epochs `first` to `last`, whose standard error is `error`, None if the
    values are too few to tell. For a configuration that was trained to its end with several `seeds`, it is the mean
    over them.
    """

    epoch: int
    reported: float
    value: float
    error: float | None
    first: int
    last: int
    seeds: int = 1


def of_full_length(values: Sequence[tuple[int, float]], mode: str) -> Worth:
    """The worth of a trial that was trained to its end, from each (epoch, value) that is a number, in their order.

    At least one is needed. Of fewer than FEWEST the best stands for the trial, because they don't show the noise.
    """
    if len(values) < FEWEST:
        return of_shortened(values, mode)
    scale = (
        _Logarithmic() if _differs_by_factors(values, mode) else _Linear(max(abs(value) for _, value in values) or 1.0)
    )
    sign = 1.0 if mode == "max" else -1.0
    signed = [sign * scale.place(value) for _, value in values]
    noise, best, end = _noise(signed), signed.index(max(signed)), len(values) - 1
    declined = _has_declined(signed, best, noise)
    window = _around(best, end) if declined else range(end + 1 - _best_mean(signed), end + 1)
    mean = scale.value(sign * fmean(signed[index] for index in window)) + 0.0  # a loss of 0 is no -0
    error = scale.width(mean, noise / math.sqrt(len(window))) if len(values) >= FEWEST_OF_AN_ERROR else None
    epoch, reported = values[best if declined else end]
    return Worth(epoch, reported, mean, error, values[window[0]][0], values[window[-1]][0])


def of_shortened(values: Sequence[tuple[int, float]], mode: str) -> Worth:
    """The worth of a trial that was not trained to its end: its best value (the earlier of equals) and its network."""
    sign = 1.0 if mode == "max" else -1.0
    epoch, value = max(values, key=lambda pair: (sign * pair[1], -pair[0]))
    return Worth(epoch, value, value, None, epoch, epoch)


def late_half(count: int) -> int:
    """Of this many values, the largest number over which the mean is taken."""
    return math.ceil(count / 2)


@dataclass(frozen=True)
class _Linear:
    """Values as shares of the largest, so that no sum is beyond what a number can hold."""

    largest: float

    def place(self, value: float) -> float:
        return value / self.largest

    def value(self, place: float) -> float:
        return place * self.largest

    def width(self, at: float, places: float) -> float:
        """The difference between values that are so many places apart."""
        return places * self.largest


class _Logarithmic:
    """Positive values by their logarithms."""

    place = staticmethod(math.log)
    value = staticmethod(math.exp)

    def width(self, at: float, places: float) -> float:
        """The difference between values that are so many places apart, near one of them."""
        return at * places


def _differs_by_factors(values: Sequence[tuple[int, float]], mode: str) -> bool:
    """Whether this is a loss, all of it positive, whose late values differ so much, and not by a single one of them."""
    inner = sorted(value for _, value in values[-late_half(len(values)) :])[1:-1]
    return mode == "min" and bool(inner) and min(value for _, value in values) > 0 and inner[-1] >= FACTOR * inner[0]


def _best_mean(values: Sequence[float]) -> int:
    """How many of the last values, two up to half of them, have the best mean; the most of equals; more is better."""
    return max(range(FEWEST_IN_A_MEAN, late_half(len(values)) + 1), key=lambda count: (fmean(values[-count:]), count))


def _has_declined(values: Sequence[float], best: int, noise: float) -> bool:
    """Whether the last values are clearly worse than the neighbours of the best; more is better here.

    The best value itself doesn't count, because it was chosen for being high; the last values, up to three, do.
    """
    end = len(values) - 1
    if best == end:
        return False
    beside = [values[index] for index in (best - 1, best + 1) if 0 <= index < end] or [values[best]]
    last = values[max(best + 1, end - 2) :]
    error = noise * math.sqrt(1 / len(beside) + 1 / len(last))
    return fmean(beside) - fmean(last) > CLEAR * error


def _around(best: int, end: int) -> range:
    """The indexes of the best value and its neighbours."""
    first = max(0, min(best - BESIDE // 2, end + 1 - BESIDE))
    return range(first, first + BESIDE)


def _noise(values: Sequence[float]) -> float:
    """The standard deviation of one value about the curve, estimated from second differences of the late values.

    Second differences leave out a steady rise (Gasser, Sroka and Jennen-Steinmetz, 1986), their median a few steps, and
    late ones the bend of the curve itself, which is strong where training begins.
    """
    first = max(1, min(len(values) - late_half(len(values)), len(values) - 3))
    bends = [abs(values[i - 1] - 2 * values[i] + values[i + 1]) for i in range(first, len(values) - 1)]
    bend = median(bends)
    return bend / MEDIAN_BEND if bend > ROUNDING else 0.0
