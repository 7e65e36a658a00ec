"""Checks of a trial: its model's outputs, the number of its images, its loss."""

from __future__ import annotations

import math

import torch
from torch import nn

from tuner.errors import TrialDiverged, TrialError
from tuner.train.data import Splits
from tuner.train.memory.errors import SMALLER_MODEL, memory_errors
from tuner.train.parallel.strategy import LEAST_BATCH
from tuner.trial import ImageClassifier


def check_outputs(module: nn.Module, trial: ImageClassifier, splits: Splits) -> None:
    """Raise TrialError unless a model from a user's function has an output for every class."""
    if isinstance(trial.model, str):
        return
    example = splits.normalisation(splits.train.images(torch.arange(2)))
    with torch.inference_mode(), memory_errors("two images", SMALLER_MODEL):
        logits = module.eval()(example)
    if logits.ndim != 2 or logits.shape[1] < len(splits.classes):
        raise TrialError(
            f"a model must return logits [N, {len(splits.classes)}], got {list(logits.shape)} for 2 images "
            f"from {trial.model_name}; give it an output for every class"
        )


def check_images(images: int, least: int) -> None:
    """Raise TrialError if there are fewer training images than the `least` that several devices need."""
    if images < least > LEAST_BATCH:
        raise TrialError(
            f"devices that share each batch need {LEAST_BATCH} training images each, {least} in total, "
            f"got {images}; use fewer devices, or give more images"
        )


def check_loss(loss: float, kind: str, *, epoch: int, lr: float) -> None:
    """Raise TrialDiverged unless the loss of this kind is finite."""
    if not math.isfinite(loss):
        raise TrialDiverged(
            f"the loss must stay finite, got a {kind} loss of {loss} in epoch {epoch} with lr={lr:g}; lower lr"
        )
