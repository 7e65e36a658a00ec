"""Models of the Hugging Face hub: built, and their weights read, by transformers, which is only loaded here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import StudyError, describe_error
from tuner.train.models.heads import Summary
from tuner.trial.hub_rows import CONFIG, DEPTH, PREFIXES, WEIGHTS
from tuner.trial.models import ModelFacts

OF_CLASSES = ("id2label", "label2id", "num_labels", "dtype", "transformers_version")
HUBS_SCRIPT = """\
from transformers import AutoConfig, AutoModelForImageClassification

config = AutoConfig.for_model(**facts["network"]["config"], num_labels=len(facts["labels"]))
getattr(config, "vision_config", config).num_channels = facts["channels"]
model = torch.nn.ModuleDict({"model": AutoModelForImageClassification.from_config(config)}).eval()


def logits(images):
    return model["model"](pixel_values=images, **facts["network"]["options"]).logits
"""


class HubNetwork(nn.Module):
    """A classifier of transformers that takes images and returns logits."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        """`options` are given to the model with every batch."""
        super().__init__()
        self.model, self.options = model, options

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, classes] of normalised images."""
        logits: Tensor = self.run(self.model, images).logits
        return logits

    def run(self, part: Any, images: Tensor, **options: Any) -> Any:
        """What the model or a part of it gives for normalised images."""
        if torch.compiler.is_exporting():  # torch's own attention of windows, as in Swin, can't be written as ONNX
            self.model.set_attn_implementation("eager")  # type: ignore[operator]
        return part(pixel_values=images, **self.options, **options)


def build_hubs(facts: ModelFacts) -> nn.Module:
    """A model of the hub with random weights; raises StudyError if transformers can't make a classifier of it."""
    from transformers import AutoModelForImageClassification

    try:
        config = _config(facts)
        if facts.skipped is not None and facts.stochastic_depth:
            setattr(getattr(config, "vision_config", config), DEPTH, facts.skipped)
        model = AutoModelForImageClassification.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever transformers and torch raise for values that don't go together
        raise StudyError(
            f"{CONFIG} of {facts.name} must describe a model with which transformers can classify images, got "
            f"{describe_error(error)}; choose another model"
        ) from error
    own = getattr(config, "image_size", None)
    interpolated = facts.min_size != own and "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
    return HubNetwork(model, **({"interpolate_pos_encoding": True} if facts.step and interpolated else {}))


def hubs_settings(facts: ModelFacts) -> dict[str, Any]:
    """What a repository's configuration says of the network, and the model's arguments beside the images."""
    options: dict[str, Any] = build_hubs(facts).options  # type: ignore[assignment]
    told = _config(facts).to_dict().items()
    return {"config": {name: value for name, value in told if name not in OF_CLASSES}, "options": options}


def read_hubs(facts: ModelFacts, path: Path) -> Mapping[str, Tensor]:
    """The tensors of a repository's weights under the module's names; random ones for a head that it lacks.

    Raises what transformers raises for damaged files, and ValueError for weights that are missing before the head.
    """
    import transformers

    silence_transformers()  # tuner says itself which layers are new
    model, told = transformers.AutoModelForImageClassification.from_pretrained(
        path.parent, config=_config(facts), output_loading_info=True, dtype="float32"
    )
    missing = [name for name in told["missing_keys"] if "classifier" not in name]
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing)[:3])}")
    return {f"model.{name}": value for name, value in model.state_dict().items()}


def silence_transformers() -> None:
    """Let transformers print errors alone."""
    import transformers

    said: Any = transformers.utils.logging
    said.set_verbosity_error()
    said.disable_progress_bar()


def hubs_layers(module: nn.Module) -> list[list[str]]:
    """Names of parameters that learn together, from the input on: one list for each block of the largest module list.

    What comes before the blocks is a list of its own, and what comes after them belongs to the last one.
    """
    lists = [(name, each) for name, each in module.named_modules() if isinstance(each, nn.ModuleList)]
    if not lists:
        return []
    name, blocks = max(lists, key=lambda pair: sum(value.numel() for value in pair[1].parameters()))
    layers: list[list[str]] = [[] for _ in range(len(blocks) + 1)]
    at = 0
    for parameter, _ in module.named_parameters():
        if parameter.startswith(f"{name}."):
            at = 1 + int(parameter.removeprefix(f"{name}.").partition(".")[0])
        layers[at].append(parameter)
    return layers


def hubs_width(module: Any) -> int:
    """The width of a transformer's tokens."""
    config = module.model.config
    width: int = getattr(config, "vision_config", config).hidden_size
    return width


def hubs_tokens(module: Any, images: Tensor, blocks: int) -> list[Summary]:
    """See `TokenReader.summaries`; a norm that the model applies after pooling is applied to each vector."""
    model = module.model
    backbone = getattr(model, "vision_model", model.base_model)
    norm = getattr(backbone, "post_layernorm", None) or backbone.layernorm
    after = getattr(getattr(backbone, "pooler", None), "layernorm", None) or nn.Identity()
    prefix = PREFIXES[model.config.model_type] + getattr(model.config, "num_register_tokens", 0)
    told = module.run(backbone, images, output_hidden_states=blocks > 1)  # by hooks, which break a compiled graph
    states = [*map(norm, (told.hidden_states or ())[-blocks:-1]), told.last_hidden_state]
    return [(after(each[:, 0]) if prefix else None, after(each[:, prefix:].mean(1))) for each in states]


def _config(facts: ModelFacts) -> Any:
    from transformers import AutoConfig

    file = facts.published[WEIGHTS].path.with_name(CONFIG)
    return AutoConfig.from_pretrained(file.parent, trust_remote_code=False)
