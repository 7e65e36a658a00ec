"""The training loss: cross-entropy with smoothed labels, weighted classes, weighted and mixed images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Objective:
    """The loss of a batch, as a sum over images that micro-batches can share, and the weight to divide it by.

    Attributes:
        label_smoothing: share of the target spread over all classes
        class_weights: [classes] float32 on the device; None for equal ones
        weighted: whether targets are probabilities times their image's weight
    """

    label_smoothing: float = 0.0
    class_weights: Tensor | None = None
    weighted: bool = False

    def total(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Sum of the losses for logits [B, classes] and targets [B] int64 or [B, classes] probabilities."""
        smoothing = self.label_smoothing
        if self.weighted and smoothing:  # torch would spread a share of 1 instead of one of the weight
            targets = torch.lerp(targets, targets.mean(1, keepdim=True), smoothing)
            smoothing = 0.0
        return F.cross_entropy(
            at_least_float32(logits), targets, self.class_weights, label_smoothing=smoothing, reduction="sum"
        )

    def weight(self, targets: Tensor) -> Tensor | int:
        """The divisor of a whole batch's total for its mean, as in `F.cross_entropy`."""
        if self.class_weights is None or targets.ndim == 2:
            return len(targets)
        return self.class_weights[targets].sum()


def at_least_float32(values: Tensor) -> Tensor:
    """Half-precision values as float32, others unchanged."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """Weights [classes] float32 inverse to the classes' counts, 1 on average over images; absent classes weigh 0."""
    counts = torch.bincount(labels, minlength=classes).float()
    weights = len(labels) / (counts * (counts > 0).sum())
    return torch.where(counts > 0, weights, torch.zeros_like(weights))
