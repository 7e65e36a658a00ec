"""A 95 % interval for each metric of the test split.

A share of right answers gets Wilson's interval (Wilson 1927), any other metric a bootstrap interval: samples are as
many test images, drawn with replacement, and the interval is from the 2.5th to the 97.5th percentile of their values
(Efron and Tibshirani 1993, chapter 13). A calibration error is higher in such samples than in the original images, so
the percentiles are reflected about its value (the basic interval of Davison and Hinkley 1997, chapter 5). They cover
the random choice of test images, not that of another training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.results.wording import wilson
from tuner.train.tasks import Metrics, Targets
from tuner.trial.metrics import ChosenMetric

LEVEL = 0.95
SAMPLES = 500
FEWEST_SAMPLES = 100
IMAGES_DRAWN = 500_000  # in all samples together, so that large test splits get fewer
FEWEST_IMAGES = 10  # for a bootstrap to be meaningful


@dataclass(frozen=True)
class Interval:
    """The 95 % confidence interval of a metric of the test split; `method` is "wilson" or "bootstrap"."""

    low: float
    high: float
    method: str


def intervals(targets: Targets, outputs: Tensor, labels: Tensor, chosen: Sequence[ChosenMetric]) -> dict[str, Interval]:
    """The interval of each metric of `Targets.metrics` with these arguments, by name; those that can't be computed are
    missing.
    """
    found, images = targets.metrics(outputs, labels, chosen), len(labels)
    shares = [name for name in targets.task.shares if name in found.values]
    told = {name: Interval(*wilson(round(found[name] * images), images), "wilson") for name in shares}
    if images < FEWEST_IMAGES:
        return told
    samples = _samples(targets, outputs, labels, chosen)
    rising = {metric.name for metric in chosen if metric.rises_when_resampled}
    for name, value in found.values.items():
        if name in told:
            continue
        drawn = torch.tensor([sample[name] for sample in samples], dtype=torch.float64)
        interval = _reflected(drawn, value) if name in rising else _percentiles(drawn)
        if all(map(math.isfinite, (*interval, value))):
            told[name] = Interval(*interval, "bootstrap")
    return told


def _samples(targets: Targets, outputs: Tensor, labels: Tensor, chosen: Sequence[ChosenMetric]) -> list[Metrics]:
    count = len(labels)
    generator = torch.Generator().manual_seed(0)  # the same images get the same intervals
    times = min(SAMPLES, max(FEWEST_SAMPLES, IMAGES_DRAWN // count))
    drawn = (torch.randint(count, (count,), generator=generator) for _ in range(times))
    return [targets.metrics(outputs[rows], labels[rows], chosen) for rows in drawn]


def _percentiles(drawn: Tensor) -> tuple[float, float]:
    """Percentiles over the samples that have a value: in some a class may be missing."""
    told = drawn[drawn.isfinite()]
    if len(told) < len(drawn) / 2:
        return math.nan, math.nan
    low, high = torch.quantile(told, torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=told.dtype)).tolist()
    return low, high


def _reflected(drawn: Tensor, value: float) -> tuple[float, float]:
    low, high = _percentiles(drawn)
    return max(0.0, 2 * value - high), max(0.0, 2 * value - low)
