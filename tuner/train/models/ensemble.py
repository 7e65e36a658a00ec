"""The networks of a cross-validation as one model: their probabilities are averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tuner.train.models.mirrored import answer_for_both_views
from tuner.train.models.network import empty_network
from tuner.trial import ImageClassifier


class Ensemble(nn.Module):
    """Networks with the same inputs and classes; the outputs are logits whose softmax is the mean of the networks'."""

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, classes] float32 of normalised images."""
        each = torch.stack([network(images).float().log_softmax(1) for network in self.networks])
        return each.logsumexp(0) - math.log(len(self.networks))


def networks_of(module: nn.Module) -> list[nn.Module]:
    """The networks of an ensemble, or the one network."""
    return list(module.networks) if isinstance(module, Ensemble) else [module]


def empty_model(trial: ImageClassifier, *, channels: int, classes: int, config: dict[str, Any]) -> nn.Module:
    """The model of a trial with this configuration, without its weights: one network, or an ensemble."""
    each = [
        empty_network(trial, channels=channels, classes=classes, config=config).module
        for _ in range(max(1, trial.folds))
    ]
    if config["test_time_flip"]:
        for module in each:
            answer_for_both_views(module)
    return Ensemble(each) if trial.folds else each[0]
