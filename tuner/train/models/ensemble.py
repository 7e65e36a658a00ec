"""Several networks as one model, whose answers are averaged: those of a cross-validation, or of several trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.train.data.normalisation import Normalisation
from tuner.train.models.mirrored import answer_for_both_views
from tuner.train.models.network import empty_network
from tuner.train.tasks import targets_of
from tuner.trial import ImageClassifier
from tuner.trial.tasks import ONE_LABEL, Task

Together = Callable[[Tensor, Tensor], Tensor]  # see `Targets.together`


class Member(nn.Module):
    """A network of an ensemble that may have several last layers, and take images of another size or normalisation.

    The outputs of its H last layers on the same features stand side by side. Frozen backbones are computed once for
    all heads that way.

    Attributes:
        network: its last layer has H * L outputs
        shares: [H] of the layers in the ensemble's answers
        scales: [H] factors of their outputs, which are then as sure as they are right
        size: edge in pixels of the images that it takes; None for the ensemble's
    """

    def __init__(
        self,
        network: nn.Module,
        shares: Sequence[float],
        *,
        scales: Sequence[float] | None = None,
        size: int | None = None,
        normalisation: tuple[Normalisation, Normalisation] | None = None,
    ) -> None:
        """Take the network; `normalisation` is the ensemble's and its own, None if they are the same."""
        super().__init__()
        self.network, self.size = network, size
        self.register_buffer("shares", torch.tensor(shares, dtype=torch.float32), persistent=False)
        self.scaled = scales is not None
        self.register_buffer("scales", torch.tensor(scales or [1.0], dtype=torch.float32), persistent=False)
        factor, shift = [1.0], [0.0]
        if normalisation is not None:
            given, own = normalisation
            factor = [sd / other for sd, other in zip(given.sd, own.sd, strict=True)]
            shift = [(m - n) / other for m, n, other in zip(given.mean, own.mean, own.sd, strict=True)]
        self.changes = factor != [1.0] or shift != [0.0]
        for name, values in (("factor", factor), ("shift", shift)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def fitted(self, images: Tensor) -> Tensor:
        """The images as its network takes them."""
        if self.size is not None:
            images = F.interpolate(images, (self.size, self.size), mode="bilinear", antialias=True)
        return images * self.get_buffer("factor") + self.get_buffer("shift") if self.changes else images

    def forward(self, images: Tensor) -> Tensor:
        """Outputs [N, H * L] of the ensemble's normalised images."""
        found: Tensor = self.network(self.fitted(images))
        return found

    def apart(self, outputs: Tensor) -> Tensor:
        """Outputs [H, N, L] of the last layers, scaled, from those side by side."""
        heads = len(self.get_buffer("shares"))
        each = outputs.reshape(-1, heads, outputs.shape[1] // heads).transpose(0, 1)
        return each * self.get_buffer("scales")[:, None, None] if self.scaled else each


class Ensemble(nn.Module):
    """Networks with the same outputs, which are joined by `Targets.together`; a plain network counts as one share."""

    def __init__(self, networks: Sequence[nn.Module], together: Together) -> None:
        super().__init__()
        self.networks, self.together = nn.ModuleList(networks), together
        shares = [one.get_buffer("shares") if isinstance(one, Member) else torch.ones(1) for one in networks]
        self.register_buffer("shares", torch.cat(shares) / torch.cat(shares).sum(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Outputs [N, L] float32 of normalised images."""
        each = [_apart(network, network(images).float()) for network in self.networks]
        return self.together(torch.cat(each), self.get_buffer("shares").float())


class MeanOfHeads(nn.Module):
    """One answer [N, L] of a member, the weighted mean of its last layers' outputs, for one view of the images."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member

    def forward(self, images: Tensor) -> Tensor:
        """Outputs [N, L] of the ensemble's normalised images."""
        outputs = self.member.network.forward(self.member.fitted(images))
        shares = self.member.get_buffer("shares")
        return (self.member.apart(outputs) * (shares / shares.sum())[:, None, None]).sum(0)


def single_networks(module: nn.Module) -> list[nn.Module]:
    """The networks of an ensemble, each with all its last layers; or the one network."""
    if not isinstance(module, Ensemble):
        return [module]
    return [one.network if isinstance(one, Member) else one for one in module.networks]


def networks_of(module: nn.Module) -> list[nn.Module]:
    """The networks of an ensemble, each with outputs [N, L] of the ensemble's images; or the one network."""
    if not isinstance(module, Ensemble):
        return [module]
    return [MeanOfHeads(one) if isinstance(one, Member) else one for one in module.networks]


def empty_model(
    trial: ImageClassifier, *, channels: int, classes: int, config: dict[str, Any], task: Task = ONE_LABEL
) -> nn.Module:
    """The model of a trial with this configuration, without its weights: one network, or an ensemble.

    `task` is that of the data, which the trial need not name.
    """
    each = [
        answering_network(trial, channels=channels, outputs=classes, config=config) for _ in range(max(1, trial.folds))
    ]
    return Ensemble(each, targets_of(task).together) if trial.folds else each[0]


def answering_network(trial: ImageClassifier, *, channels: int, outputs: int, config: dict[str, Any]) -> nn.Module:
    """One network without its weights; with test-time flips it answers for both views."""
    module = empty_network(trial, channels=channels, classes=outputs, config=config).module
    if config["test_time_flip"]:
        answer_for_both_views(module)
    return module


def _apart(network: nn.Module, outputs: Tensor) -> Tensor:
    return network.apart(outputs) if isinstance(network, Member) else outputs[None]
