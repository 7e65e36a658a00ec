"""The cross-entropies of several heads, and their gradients in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.train.tasks.one_label import CrossEntropy


class Losses:
    """What `CrossEntropy` computes, for several heads with objectives of their own.

    With smoothing e, weights w of the classes and u of an image, its target is u ((1 - e) w_y) at its class y, and
    u e/C w_c more at each of the C classes; the gradient by its logits is softmax times the target's sum, minus the
    target.
    """

    def __init__(self, objectives: Sequence[CrossEntropy], like: Tensor, classes: int) -> None:
        """Prepare for objectives of M heads; `like` is a tensor of their type and device."""
        equal = like.new_ones(classes)
        weights = [equal if one.class_weights is None else one.class_weights.to(equal) for one in objectives]
        smoothing = like.new_tensor([one.label_smoothing for one in objectives])[:, None]
        self._of_class = torch.stack(weights)  # [M, C]
        self._kept = self._of_class * (1 - smoothing)
        self._spread = (self._of_class * smoothing / classes)[..., None] if bool(smoothing.any()) else None
        self._by_weight = like.new_tensor([one.class_weights is not None and not one.weighted for one in objectives])

    def __call__(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """The heads' mean losses [M], and the gradients of these by the logits [M, C, B].

        Args:
            logits: [M, C, B]
            labels: [M, B] int64
            weights: [M, B], of the images; None if all are equal
        """
        losses, gradients = self.totals(logits, labels, weights)
        divisors = self.divisors(labels)
        return losses / divisors, gradients.div_(divisors[:, None, None])

    def totals(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """The heads' sums of losses [M], and the gradients of these by the logits [M, C, B]; arguments as above."""
        logs = logits.log_softmax(1)
        kept = self._kept.gather(1, labels)
        if weights is not None:
            kept *= weights
        losses = -(kept * logs.gather(1, labels[:, None])[:, 0]).sum(1)
        sums, spread = kept, self._spread
        if spread is not None:
            spread = spread if weights is None else spread * weights[:, None]
            losses -= (spread * logs).sum((1, 2))
            sums = kept + spread.sum(1)
        gradients = logs.exp_().mul_(sums[:, None])
        if spread is not None:
            gradients -= spread
        return losses, gradients.scatter_add_(1, labels[:, None], -kept[:, None])

    def divisors(self, labels: Tensor) -> Tensor:
        """See `CrossEntropy.weight`: [M], for labels [M, B]."""
        images = torch.full_like(self._by_weight, labels.shape[1])
        if not bool(self._by_weight.any()):
            return images
        return torch.where(self._by_weight.bool(), self._of_class.gather(1, labels).sum(1), images)
