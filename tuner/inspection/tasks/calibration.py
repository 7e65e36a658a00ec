"""Whether a model's confidence matches its accuracy, and the temperature that corrects it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.train.tasks import targets_of
from tuner.trial.tasks import ONE_LABEL

BINS = 15


@dataclass(frozen=True)
class Bin:
    """Predictions of about the same confidence: how many, their mean confidence, and the share of right ones."""

    images: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """A model's confidence and accuracy on the test split.

    Attributes:
        temperature: divisor of the logits that makes the validation labels most likely; 1 changes nothing; None if the
            model was trained on all validation images
        accuracy: share of right answers
        confidence: mean probability of the answers
        ece: expected calibration error: the mean gap of confidence and accuracy over the bins, weighted by images
        scaled_ece: `ece` after division by the temperature; None without one
        bins: of 15 equally wide bins those with images
        scaled_bins: `bins` after division by the temperature; none without one
    """

    temperature: float | None
    accuracy: float
    confidence: float
    ece: float
    scaled_ece: float | None
    bins: tuple[Bin, ...]
    scaled_bins: tuple[Bin, ...]


def calibration(logits: Tensor, labels: Tensor, validation: tuple[Tensor, Tensor] | None) -> Calibration:
    """How well calibrated answers are; after Guo et al. (2017), "On Calibration of Modern Neural Networks".

    Args:
        logits: [N, classes] float32 of the test split
        labels: [N] int64
        validation: logits [M, classes] float32 and labels [M] int64, which the temperature is fitted to; None for none
    """
    temperature = fitted_temperature(*validation) if validation else None
    before, after = bins_of(logits, labels), bins_of(logits / temperature, labels) if temperature else ()
    images = sum(one.images for one in before)
    return Calibration(
        temperature=temperature,
        accuracy=sum(one.images * one.accuracy for one in before) / images,
        confidence=sum(one.images * one.confidence for one in before) / images,
        ece=calibration_error(before),
        scaled_ece=calibration_error(after) if after else None,
        bins=before,
        scaled_bins=after,
    )


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the lowest cross-entropy, from 0.05 to 20: see `Targets.scales`."""
    targets = targets_of(ONE_LABEL)(tuple(map(str, range(logits.shape[1]))))
    with torch.inference_mode():
        return 1 / float(targets.scales(logits[None], labels))


def bins_of(logits: Tensor, labels: Tensor) -> tuple[Bin, ...]:
    """Answers [N, classes] in bins of equal width by their confidence; empty bins are left out."""
    confidence, answers = logits.double().softmax(1).max(1)
    right = (answers == labels).double()
    places = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    found = []
    for place in sorted(set(places.tolist())):
        inside = places == place
        mean, share = confidence[inside].mean(), right[inside].mean()
        found.append(Bin(int(inside.sum()), float(mean), float(share)))
    return tuple(found)


def calibration_error(bins: tuple[Bin, ...]) -> float:
    """The expected calibration error, 0 to 1."""
    images = sum(one.images for one in bins)
    return sum(one.images * abs(one.accuracy - one.confidence) for one in bins) / images
