"""Models by name: how each library creates a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torchvision
from torch import nn

from tuner.trial.models import ModelFacts


def named_module(facts: ModelFacts) -> nn.Module:
    """The library's model, with the classes of the published weights and random weights."""
    return BUILDERS[facts.library](facts)


def build_torchvisions(facts: ModelFacts) -> nn.Module:
    """A model of torchvision with 1000 classes, without auxiliary heads."""
    options: dict[str, Any] = {}
    if facts.name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": False}
    elif facts.fixed_size and facts.name.startswith("vit"):
        options = {"image_size": facts.min_size}
    module: nn.Module = torchvision.models.get_model(facts.name, weights=None, **options)
    return module


BUILDERS: Mapping[str, Callable[[ModelFacts], nn.Module]] = {
    "torchvision": build_torchvisions,
}  # each takes RGB images; the names are those of the tables in tuner/trial/libraries/
