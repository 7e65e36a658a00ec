"""Models by name: how each library creates a module, and reads the weights that it publishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from tuner.train.models.heads import Summary, TokenReader
from tuner.train.models.hubs import (
    HUBS_SCRIPT,
    build_hubs,
    hubs_layers,
    hubs_settings,
    hubs_tokens,
    hubs_width,
    read_hubs,
)
from tuner.train.models.timms import (
    TIMMS_SCRIPT,
    build_timms,
    read_timms,
    timms_layers,
    timms_settings,
    timms_tokens,
)
from tuner.trial.models import ModelFacts


@dataclass(frozen=True)
class Builder:
    """How a library's models are made; stem and head are found by their shapes.

    Attributes:
        build: makes a module that takes RGB images, for any number of classes, with random weights
        settings: gives the arguments, as JSON can have them, with which the library makes it
        script: Python that makes `model` of these, as `facts["network"]`, and `logits`, of normalised images, without
            tuner
        tokens: reads those of its vision transformers
        read: gives the tensors of a published file under the module's names; None: the file has them so
        layers: gives names of parameters that learn together, from the input on; None: they are found by the modules
    """

    build: Callable[[ModelFacts], nn.Module]
    settings: Callable[[ModelFacts], Mapping[str, Any]]
    script: str
    tokens: TokenReader
    read: Callable[[ModelFacts, Path], Mapping[str, Tensor]] | None = None
    layers: Callable[[nn.Module], list[list[str]]] | None = None


def builder(facts: ModelFacts) -> Builder:
    """How the model's library makes it; raises StudyError if it isn't installed."""
    facts.check_installed()
    return BUILDERS[facts.library]


def build_torchvisions(facts: ModelFacts) -> nn.Module:
    """A model of torchvision with 1000 classes, without auxiliary heads."""
    module: nn.Module = torchvision.models.get_model(weights=None, **torchvisions_settings(facts))
    return module


def torchvisions_settings(facts: ModelFacts) -> dict[str, Any]:
    """Arguments of torchvision's `get_model`."""
    if facts.name in ("googlenet", "inception_v3"):
        return {"name": facts.name, "aux_logits": False, "init_weights": False}
    sized = {"image_size": facts.min_size} if facts.fixed_size and facts.name.startswith("vit") else {}
    return {"name": facts.name, **sized}


def torchvisions_tokens(module: Any, images: Tensor, blocks: int) -> list[Summary]:
    """See `TokenReader.summaries`."""
    patches, encoder = module._process_input(images), module.encoder
    token = module.class_token.expand(images.shape[0], -1, -1)  # len() would fix the batch in an export
    each = [encoder.dropout(torch.cat([token, patches], 1) + encoder.pos_embedding)]
    for layer in encoder.layers:
        each.append(layer(each[-1]))
    return [(tokens[:, 0], tokens[:, 1:].mean(1)) for tokens in map(encoder.ln, each[-blocks:])]


TORCHVISIONS_SCRIPT = """\
import torchvision

model = logits = torchvision.models.get_model(**facts["network"], num_classes=len(facts["labels"])).eval()
"""
BUILDERS: Mapping[str, Builder] = {
    "torchvision": Builder(
        build_torchvisions,
        torchvisions_settings,
        TORCHVISIONS_SCRIPT,
        TokenReader(lambda module: module.hidden_dim, torchvisions_tokens),
    ),
    "hf": Builder(build_hubs, hubs_settings, HUBS_SCRIPT, TokenReader(hubs_width, hubs_tokens), read_hubs, hubs_layers),
    "timm": Builder(
        build_timms,
        timms_settings,
        TIMMS_SCRIPT,
        TokenReader(lambda module: module.num_features, timms_tokens),
        read_timms,
        timms_layers,
    ),
}  # the names are those of the tables in tuner/trial/libraries/
