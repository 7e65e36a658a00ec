"""The networks of a cross-validation as one model: their answers are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tuner.train.models.mirrored import answer_for_both_views
from tuner.train.models.network import empty_network
from tuner.train.tasks import targets_of
from tuner.trial import ImageClassifier
from tuner.trial.tasks import ONE_LABEL, Task


class Ensemble(nn.Module):
    """Networks with the same inputs and outputs, which are joined by `Targets.together`."""

    def __init__(self, networks: Iterable[nn.Module], together: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.networks, self.together = nn.ModuleList(networks), together

    def forward(self, images: Tensor) -> Tensor:
        """Outputs [N, L] float32 of normalised images."""
        return self.together(torch.stack([network(images).float() for network in self.networks]))


def networks_of(module: nn.Module) -> list[nn.Module]:
    """The networks of an ensemble, or the one network."""
    return list(module.networks) if isinstance(module, Ensemble) else [module]


def empty_model(
    trial: ImageClassifier, *, channels: int, classes: int, config: dict[str, Any], task: Task = ONE_LABEL
) -> nn.Module:
    """The model of a trial with this configuration, without its weights: one network, or an ensemble.

    `task` is that of the data, which the trial need not name.
    """
    each = [
        empty_network(trial, channels=channels, classes=classes, config=config).module
        for _ in range(max(1, trial.folds))
    ]
    if config["test_time_flip"]:
        for module in each:
            answer_for_both_views(module)
    return Ensemble(each, targets_of(task).together) if trial.folds else each[0]
