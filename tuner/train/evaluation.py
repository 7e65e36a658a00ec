"""A model's answers to a split."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.train.data import Normalisation, Split, in_chunks

PIXELS_PER_BATCH = 2**19  # 668 images of 28x28, 10 of 224x224: activations stay small next to a training step's


def predict(module: nn.Module, images: Tensor, normalisation: Normalisation, device: torch.device | str) -> Tensor:
    """The model's logits in evaluation mode; the module is left in that mode.

    Args:
        module: on `device`
        images: [N, C, H, W] uint8, on any device
        normalisation: of the training data
        device: where to compute

    Returns:
        [N, classes] float32 on `device`
    """
    module.eval()
    batch = max(1, PIXELS_PER_BATCH // (images.shape[-1] * images.shape[-2]))
    with torch.inference_mode():
        return torch.cat([module(normalisation(chunk.to(device))) for chunk in in_chunks(images, batch)])


def loss_and_accuracy(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """Mean cross-entropy and share of correct answers, of logits [N, classes] and labels [N] on any device."""
    labels = labels.to(logits.device)
    loss = F.cross_entropy(logits, labels)
    return float(loss), int((logits.argmax(1) == labels).sum()) / len(labels)


def evaluate(
    module: nn.Module, split: Split, normalisation: Normalisation, device: torch.device | str
) -> tuple[float, float]:
    """Loss and accuracy of a module on a split."""
    return loss_and_accuracy(predict(module, split.images, normalisation, device), split.labels)
