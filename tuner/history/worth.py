"""What a trial is worth by its reported values, and which of its networks stands for it.

The highest of several noisy values is higher than what it measures, and the more values there are, the more so: a
search that takes the trial with the highest value at any epoch takes a lucky one. So a trial that was trained in full
is worth the mean of the last half of its values, and its last network stands for it. Where the values clearly became
worse after the best one, as a model does that overfits or diverges, it is worth the mean around the best, whose network
then stands for it. What this gains is in `docs/explanation/measured.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

FEWEST = 4  # values, of which noise can be told from change
CLEAR = 2.0  # standard errors by which the values must have become worse
# The median of |difference| of two neighbours, whose errors are normal with standard deviation 1.
MEDIAN_DIFFERENCE = 0.954


@dataclass(frozen=True)
class Worth:
    """What one trial is worth.

    `epoch` is the one whose network stands for the trial, `reported` the value reported after it. `value` is what
    trials are compared by: the mean over the epochs `first` to `last`, whose standard error is `error`, None where the
    values are too few to tell.
    """

    epoch: int
    reported: float
    value: float
    error: float | None
    first: int
    last: int


def of_full_length(values: Sequence[tuple[int, float]], mode: str) -> Worth:
    """The worth of a trial that was trained to its end, from each (epoch, value) that is a number, in their order.

    At least one is needed. Of fewer than FEWEST the best stands for the trial, as they say nothing of noise.
    """
    if len(values) < FEWEST:
        return of_shortened(values, mode)
    sign = 1.0 if mode == "max" else -1.0
    signed = [sign * value for _, value in values]
    best, end, half = signed.index(max(signed)), len(values) - 1, late_half(len(values))
    declined = _has_declined(signed, best)
    around = _around(best, half, end) if declined else range(end + 1 - half, end + 1)
    window = [values[index][1] for index in around]
    error = _noise(signed) / math.sqrt(len(window))
    epoch, reported = values[best if declined else end]
    return Worth(epoch, reported, fmean(window), error, values[around[0]][0], values[around[-1]][0])


def of_shortened(values: Sequence[tuple[int, float]], mode: str) -> Worth:
    """The same of a trial that was not: its best value, the earlier of equals, and that epoch's network."""
    sign = 1.0 if mode == "max" else -1.0
    epoch, value = max(values, key=lambda pair: (sign * pair[1], -pair[0]))
    return Worth(epoch, value, value, None, epoch, epoch)


def late_half(count: int) -> int:
    """How many of so many values the mean is of."""
    return math.ceil(count / 2)


def _has_declined(values: Sequence[float], best: int) -> bool:
    """Whether the last values are clearly worse than those beside the best; more is better here.

    The best itself doesn't count: it was chosen for being high. Of the last values up to three do.
    """
    end = len(values) - 1
    if best == end:
        return False
    beside = [values[index] for index in (best - 1, best + 1) if 0 <= index < end] or [values[best]]
    last = values[max(best + 1, end - 2) :]
    error = _noise(values) * math.sqrt(1 / len(beside) + 1 / len(last))
    return fmean(beside) - fmean(last) > CLEAR * error


def _around(best: int, count: int, end: int) -> range:
    """So many indexes with `best` in their middle, as far as there are."""
    first = max(0, min(best - (count - 1) // 2, end + 1 - count))
    return range(first, first + count)


def _noise(values: Sequence[float]) -> float:
    """The standard deviation of one value about the curve, by the median difference of neighbours.

    Differences of neighbours leave out how a curve rises (von Neumann, 1941), their median also a few large steps.
    """
    return median(abs(after - before) for before, after in pairwise(values)) / MEDIAN_DIFFERENCE
