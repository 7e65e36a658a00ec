"""timm's models: built, and their published weights read, by timm itself, which is only loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tuner.train.models.heads import Summary
from tuner.trial.models import ModelFacts


def build_timms(facts: ModelFacts) -> nn.Module:
    """A model of timm with random weights."""
    return _made(facts, num_classes=1)


def read_timms(facts: ModelFacts, path: Path) -> Mapping[str, Tensor]:
    """A file that timm publishes for a model, under the module's names, its positions fitted to the image's size.

    Raises what timm raises for a file that is damaged or another model's.
    """
    return _made(facts, pretrained=True, pretrained_cfg_overlay={"file": str(path), "custom_load": False}).state_dict()


def timms_layers(module: nn.Module) -> list[list[str]]:
    """Names of parameters that learn together, from the input on, as timm groups them for layer-wise rates.

    Empty for the few models that timm doesn't group.
    """
    from timm.models import group_parameters

    if not hasattr(module, "group_matcher"):
        return []
    layers: Mapping[int, list[str]] = group_parameters(module, module.group_matcher(coarse=False))  # type: ignore[operator]
    return [layers[number] for number in sorted(layers)]


def timms_tokens(module: Any, images: Tensor, blocks: int) -> list[Summary]:
    """See `TokenReader.summaries`; a norm that timm applies after pooling is applied to each vector."""
    after = getattr(module, "fc_norm", None) or nn.Identity()
    read = module.forward_intermediates(
        images, indices=blocks, return_prefix_tokens=True, norm=True, output_fmt="NLC", intermediates_only=True
    )
    parts = [each if isinstance(each, tuple) else (each, None) for each in read]
    has_token = getattr(module, "cls_token", None) is not None  # the other prefixes are registers
    return [(after(prefix[:, 0]) if has_token else None, after(patches.mean(1))) for patches, prefix in parts]


def _made(facts: ModelFacts, **options: Any) -> nn.Module:
    import timm

    name = facts.name.partition(":")[2].partition(".")[0]
    if facts.default:  # some weights come with other settings of the architecture
        name = f"{name}.{facts.default}"
    if facts.step is not None:
        options["img_size"] = facts.min_size
    module: nn.Module = timm.create_model(name, **options)
    return module
