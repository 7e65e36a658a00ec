"""Predictions that are the mean of those for an image and for its mirror image, left to right (test-time flips).

The mean is that of the logits. In validation a trainer evaluates both views; an exported model does so by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


def mirror(normalise: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function applied to mirrored images [B, C, H, W]."""
    return lambda images: normalise(images).flip(-1)


def mean_of_views(answers: Tensor, mirrored: Tensor) -> Tensor:
    """The mean of the outputs for images and for their mirror images."""
    return (answers + mirrored) / 2


def answer_for_both_views(module: nn.Module) -> None:
    """Let a network return the mean of both views when it is called; its tensors keep their names, and `forward`
    remains for one view.
    """
    module.register_forward_hook(_with_mirrored)


def _with_mirrored(module: nn.Module, inputs: tuple[Tensor, ...], answers: Tensor) -> Tensor:
    return mean_of_views(answers, module.forward(inputs[0].flip(-1)))
