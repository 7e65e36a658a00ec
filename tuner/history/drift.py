"""How much a machine's pace changes in the course of a search, as far as the times of its epochs show it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
PARTS = 4  # that a trial's epochs are divided into, each with its mean
# standard deviations of logarithms that are compared: of the pace after half of the time; between trials
CHANGES = np.array([0.02, 0.04, 0.07, 0.1, 0.15, 0.22, 0.33, 0.5])
DIFFERENCES = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
USUAL, ORDERS = 0.08, 1.0  # prior of the change: its median; the standard deviation of its logarithm
LEAST_NOISE = 0.01  # standard deviation of the logarithm of an epoch's time, in a trial at the same pace


def pace_change(trials: Sequence[Sequence[tuple[float, float]]], elapsed: float) -> float | None:
    """How much the logarithm of the pace changes in half of the time that has passed; its standard deviation.

    The model: the logarithm of an epoch's time is the trial's own, plus the machine's, which is a random walk that all
    trials share, plus noise. So epochs that differ by themselves are no change; trials that ran at the same time show
    one, and those that ran one after another, too, if trials take alike otherwise. The sizes of the walk and of the
    trials' differences are compared by their restricted likelihood (Patterson and Thompson 1971, Biometrika 58). The
    result is the posterior's geometric mean: its mean would be that of the largest sizes as long as little is known.

    Args:
        trials: of each one, when its epochs ended and how long they took, in seconds
        elapsed: seconds that have passed

    Returns:
        None before a trial has had two epochs in a row
    """
    known = [np.array([(at - took, math.log(took)) for at, took in trial if took > 0]) for trial in trials]
    steps = [np.diff(trial[:, 1]) for trial in known if len(trial) > 1]
    if not steps or elapsed <= 0:
        return None
    noise = max(LEAST_NOISE**2, float(np.mean(np.concatenate(steps) ** 2)) / 2)
    parts = [(k, part) for k, trial in enumerate(known) if len(trial) for part in _divided(trial)]
    owner = np.array([k for k, _ in parts])
    # a part is at its begin: its end is later just because its epochs took long
    at, value = np.array([(part[0, 0], part[:, 1].mean()) for _, part in parts]).T
    alone = np.diag(noise / np.array([len(part) for _, part in parts]))
    same = (owner[:, None] == owner).astype(float)
    shared = np.minimum.outer(at - at.min(), at - at.min()) * 2 / elapsed
    fits = np.array([[_fit(c**2 * shared + d**2 * same + alone, value) for d in DIFFERENCES] for c in CHANGES])
    fits -= 0.5 * (np.log(CHANGES / USUAL) / ORDERS)[:, None] ** 2
    chances = np.exp(fits - fits.max()).sum(axis=1)
    return float(np.exp(chances @ np.log(CHANGES) / chances.sum()))


def _divided(trial: Floats) -> list[Floats]:
    return np.array_split(trial, min(PARTS, len(trial)))


def _fit(covariance: Floats, value: Floats) -> float:
    """The restricted log likelihood of normal values with an unknown mean, but for a constant."""
    root = np.linalg.cholesky(covariance)
    ours, ones = np.linalg.solve(root, np.stack([value, np.ones(len(value))], axis=1)).T
    weight = ones @ ones
    off = ours @ ours - (ours @ ones) ** 2 / weight
    return float(-np.log(np.diag(root)).sum() - 0.5 * math.log(weight) - 0.5 * off)
