"""Embeddings: the inputs of a model's last layer, for search and clustering of images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuner.train.models import head_of, networks_of


class Embedded(nn.Module):
    """A model that returns its logits followed by its last layer's inputs; those of several networks side by side.

    If that layer is a convolution, as in SqueezeNet, the mean over positions is taken; if a model predicts for an image
    and its mirror image, the mean of both.
    """

    def __init__(self, module: nn.Module, classes: int) -> None:
        super().__init__()
        self.module, self.classes = module, classes

    def forward(self, images: Tensor) -> Tensor:
        """Logits and inputs [N, classes + features] float32 of normalised images."""
        networks = networks_of(self.module)
        seen: list[list[Tensor]] = [[] for _ in networks]
        hooks = [
            head_of(network).register_forward_hook(lambda _, inputs, __, views=views: views.append(_flat(inputs[0])))
            for network, views in zip(networks, seen, strict=True)
        ]
        try:
            logits = self.module(images).float()
            return torch.cat([logits, *(torch.stack(views).mean(0) for views in seen)], dim=1)
        finally:
            for hook in hooks:
                hook.remove()

    def apart(self, told: Tensor) -> tuple[Tensor, Tensor]:
        """Split the result of `forward` into logits [N, classes] and embeddings [N, features]."""
        return told[:, : self.classes], told[:, self.classes :]


def _flat(values: Tensor) -> Tensor:
    return (values.mean((2, 3)) if values.ndim == 4 else values.flatten(1)).float()
