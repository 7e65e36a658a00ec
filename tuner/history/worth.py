"""The value by which a trial is compared, and which of its networks is used for it.

The highest of several noisy values is too high, and more so the more values there are: a search that takes the trial
with the highest value at any epoch takes a lucky one. So a trial that was trained in full is worth a mean of its last
values, the best of those of the last two, three, and so on up to half of them, and its last network stands for it. That
is how isotonic regression tells the end of a curve that rises (Ayer et al. 1955), except for the last value alone: a
flat noisy curve is averaged, one that still rises isn't held back by its earlier values. Where the values clearly
became worse after the best one, as those of a model that overfits do, the trial is worth the mean of the best and its
neighbours, and the best one's network stands for it. What this gains is in `docs/explanation/measured.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

FEWEST = 4  # values, with which noise can be distinguished from change
FEWEST_OF_AN_ERROR = 9  # values, from which the noise is estimated well enough to be shown
CLEAR = 2.0  # standard errors by which values that became worse did so clearly
FEWEST_IN_A_MEAN = 2
BESIDE = 3  # values in the mean around the best one
# The median of |a - 2b + c| of three neighbours whose errors are normal with standard deviation 1.
MEDIAN_BEND = 0.6745 * math.sqrt(6)


@dataclass(frozen=True)
class Worth:
    """What one trial is worth.

    `epoch` is the one whose network stands for the trial, `reported` the value reported after it. `value` is what
    trials are compared by: the mean over the epochs `first` to `last`, whose standard error is `error`, None if the
    values are too few to tell. Of a configuration that was trained to its end under several `seeds`, it is the mean of
    theirs.
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

    At least one is needed. Of fewer than FEWEST the best stands for the trial, as they say nothing of noise.
    """
    if len(values) < FEWEST:
        return of_shortened(values, mode)
    scale = max(abs(value) for _, value in values) or 1.0  # so that no sum is beyond what a number can hold
    sign = (1.0 if mode == "max" else -1.0) / scale
    signed = [sign * value for _, value in values]
    noise, best, end = _noise(signed), signed.index(max(signed)), len(values) - 1
    declined = _has_declined(signed, best, noise)
    window = _around(best, end) if declined else range(end + 1 - _best_mean(signed), end + 1)
    mean = scale * fmean(values[index][1] / scale for index in window)
    error = scale * noise / math.sqrt(len(window)) if len(values) >= FEWEST_OF_AN_ERROR else None
    epoch, reported = values[best if declined else end]
    return Worth(epoch, reported, mean, error, values[window[0]][0], values[window[-1]][0])


def of_shortened(values: Sequence[tuple[int, float]], mode: str) -> Worth:
    """The same for a trial that was not trained to its end: its best value (the earlier of equals), and that epoch's
    network.
    """
    sign = 1.0 if mode == "max" else -1.0
    epoch, value = max(values, key=lambda pair: (sign * pair[1], -pair[0]))
    return Worth(epoch, value, value, None, epoch, epoch)


def late_half(count: int) -> int:
    """The most of this many values that the mean is taken over."""
    return math.ceil(count / 2)


def _best_mean(values: Sequence[float]) -> int:
    """How many of the last values, two up to half of them, have the best mean; the most of equals; more is better."""
    return max(range(FEWEST_IN_A_MEAN, late_half(len(values)) + 1), key=lambda count: (fmean(values[-count:]), count))


def _has_declined(values: Sequence[float], best: int, noise: float) -> bool:
    """Whether the last values are clearly worse than the neighbours of the best; more is better here.

    The best itself doesn't count: it was chosen for being high. Of the last values up to three do.
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
    return median(bends) / MEDIAN_BEND
