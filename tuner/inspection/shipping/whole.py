"""The winner with preprocessing and softmax around its network: uint8 images in, probabilities out."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from tuner.inspection.best import LoadedModel
from tuner.train.data.normalisation import LEVELS
from tuner.trial.pixels import NO_DEEP


class WholeModel(nn.Module):
    """Images [N, channels, size, size] uint8 to probabilities [N, classes] float32."""

    def __init__(self, loaded: LoadedModel, *, half: bool = False) -> None:
        """Take the network, in float16 if `half`; normalisation and softmax stay in float32."""
        super().__init__()
        normalisation = loaded.card.inputs.normalisation
        self.network = deepcopy(loaded.module).half() if half else loaded.module
        self.half_precision = half
        self.register_buffer("mean", torch.tensor(normalisation.mean).mul(LEVELS).view(-1, 1, 1))
        self.register_buffer("sd", torch.tensor(normalisation.sd).mul(LEVELS).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        values = (images.float() - self.get_buffer("mean")) / self.get_buffer("sd")
        logits: Tensor = self.network(values.half() if self.half_precision else values)
        return logits.float().softmax(1)


def facts_of(loaded: LoadedModel) -> dict[str, Any]:
    """The facts that a program needs to use the model, as plain data."""
    card = loaded.card
    return {
        "labels": list(card.classes),
        "channels": card.inputs.channels,
        "image_size": card.inputs.image_size,
        "resize": card.inputs.resize,
        "interpolation": card.inputs.interpolation,
        "scale": asdict(card.inputs.scale or NO_DEEP),
        "mean": list(card.inputs.normalisation.mean),
        "sd": list(card.inputs.normalisation.sd),
        "model": card.model,
        "test_time_flip": card.test_time_flip,
    }
