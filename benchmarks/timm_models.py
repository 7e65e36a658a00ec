"""Writes what is known of timm's models without timm: `tuner/trial/libraries/timm.json`, from the installed timm.

python -m benchmarks.timm_models

Models are built without contents, and images of several edges sent through the first one of each kind (class, size of
patches, beginning of the name): about a quarter of an hour. Left out are models with several heads, or with a stem that
takes other images than RGB ones; and weights that aren't on the Hugging Face hub, aren't read from one file of tensors,
or whose images need borders.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from math import floor
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import get_pretrained_cfg
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tuner.train.models import depth_rates, head_of
from tuner.train.models.timms import timms_tokens
from tuner.trial.models import MEAN, SD

TABLE = Path(__file__).parent.parent / "tuner" / "trial" / "libraries" / "timm.json"
CLASSES = 10
SMALLEST = (32, 64, 96, 128, 160, 192, 224)  # edges that are tried, for a model that takes several
STEPS = (32, 64)  # that are tried, for a model whose patches are smaller than WHOLE_PATCH
WHOLE_PATCH = 8
UNKNOWN = 0
RATE = 0.1  # of left out blocks, for a try
_edges: dict[tuple[object, ...], int | None] = {}  # smallest ones and steps; tried with the first model of a kind
HEADER = {
    "repository": "timm/MODEL.WEIGHTS",
    "extra": "timm",
    "examples": ["timm:vit_small_patch14_dinov2", "timm:convnext_tiny", "timm:resnet50"],
    "each_model": {"min_size": 32, "stochastic_depth": True},
    "each_weights": {
        "file": "model.safetensors",
        "size": 224,
        "interpolation": "bicubic",
        "licence": "apache-2.0",
        "pillow": True,
    },
}


def weights_of(name: str) -> dict[str, dict[str, Any]]:
    """A row for each of a model's published weights, the default ones first; what is as for most is left out."""
    default = getattr(get_pretrained_cfg(name), "tag", "")
    tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{name}.*")]
    return {tag: row for tag in sorted(tags, key=lambda tag: tag != default) if (row := _row(name, tag)) is not None}


def _row(name: str, tag: str) -> dict[str, Any] | None:
    found = get_pretrained_cfg(f"{name}.{tag}")
    if found is None or not found.hf_hub_id or found.hf_hub_filename or found.crop_mode == "border":
        return None
    size = found.input_size[-1]
    row = {"size": size, "resize": floor(size / found.crop_pct), "interpolation": found.interpolation}
    row |= {"squash": True} if found.crop_mode == "squash" else {}
    row |= {} if (tuple(found.mean), tuple(found.std)) == (MEAN, SD) else {"mean": found.mean, "sd": found.std}
    row |= {"licence": found.license or ""}
    row |= {} if found.hf_hub_id == f"timm/{name}.{tag}" else {"repository": found.hf_hub_id}
    usual = HEADER["each_weights"] | {"resize": size}  # type: ignore[operator]
    return {key: value for key, value in row.items() if usual.get(key) != value}


def model_row(name: str) -> dict[str, Any] | None:
    """The row of a model; None for one that tuner can't give other classes or channels, or that takes no images."""
    module = _made(name)
    classifier, head = module.get_classifier(), head_of(module)  # type: ignore[operator]
    stems = [layer for layer in module.modules() if getattr(layer, "in_channels", 0) == 3]
    if not isinstance(classifier, nn.Module) or head not in list(classifier.modules()) or not stems:
        return None
    if isinstance(classifier, nn.ModuleList):  # several heads
        return None
    cfg, weights = module.default_cfg, weights_of(name)
    size, fixed = cfg["input_size"][-1], cfg["fixed_input_size"]  # type: ignore[index]
    kind = type(module), _patch(module), name.partition("_")[0], fixed
    if kind not in _edges:
        _edges[kind] = _step(name, module, size) if fixed else _least(module, size)
    if _edges[kind] == UNKNOWN:
        return None
    row: dict[str, Any] = {"min_size": size, "fixed_size": True, "step": _edges[kind]}
    if not fixed:
        row = {"min_size": _edges[kind]}
    elif row["step"] is None:
        del row["step"]
    if not any(isinstance(layer, _BatchNorm) for layer in module.modules()):
        row["batch_norm"] = False
    row["stochastic_depth"] = _has_stochastic_depth(name)
    if (tokens := tokens_of(module, size)) is not None:
        row["tokens"] = tokens
    for tag, each in weights.items():
        edge = each.get("size", HEADER["each_weights"]["size"])  # type: ignore[index]
        if row.get("fixed_size") and edge != size:
            weights[tag] = each | {"min_size": edge}
    usual = HEADER["each_model"]
    row = {key: value for key, value in row.items() if usual.get(key) != value}  # type: ignore[attr-defined]
    return row | ({"weights": weights} if weights else {})


def _has_stochastic_depth(name: str) -> bool:
    """Whether timm builds the model with blocks that are left out in training."""
    try:
        module = _made(name, drop_path_rate=RATE)
    except TypeError:  # the class has no such argument
        return False
    return any(rate > 0 for rate in depth_rates(module).values())


def tokens_of(module: nn.Module, size: int) -> dict[str, Any] | None:
    """A row's part about a vision transformer's tokens; None for a model without, or whose blocks timm doesn't give."""
    if type(module).__name__.startswith("SwinTransformer"):
        return {"blocks": 1}
    blocks = len(getattr(module, "blocks", ()))
    try:
        with torch.inference_mode():
            read = timms_tokens(module, torch.zeros(2, 3, size, size, device="meta"), max(1, blocks))
    except (AttributeError, TypeError, NameError):  # of a model that can't give blocks, or not their prefixes
        return None
    given = [part for parts in read for part in parts if part is not None]
    if not blocks or any(part.shape != (2, module.num_features) for part in given):
        return None
    return {"blocks": blocks} | ({"class_token": True} if read[0][0] is not None else {})


def _patch(module: nn.Module) -> int:
    """The edge of a vision transformer's patches; 0 for a model without."""
    patch = getattr(getattr(module, "patch_embed", None), "patch_size", 0)
    return patch if isinstance(patch, int) else int(patch[0])


def _least(module: nn.Module, size: int) -> int:
    """The smallest edge that a model of any edge takes."""
    return next((edge for edge in (*SMALLEST, size) if _takes(module, edge)), UNKNOWN)


def _step(name: str, module: nn.Module, size: int) -> int | None:
    """The step from one edge to the next for which timm can build the model and fit its weights; None: it can't."""
    if not _takes(module, size):
        return UNKNOWN
    patch, state = _patch(module), dict(module.state_dict())
    for step in (patch,) if patch >= WHOLE_PATCH else STEPS:
        near = size // step * step
        if all(_fits(name, state, edge) for edge in (near + step, near - step, max(2, size // step // 2) * step)):
            return step
    return None


def _fits(name: str, state: dict[str, Tensor], edge: int) -> bool:
    """Whether timm builds the model for images of this edge, with weights for others."""
    try:
        return _takes(_made(name, img_size=edge, pretrained=True, pretrained_cfg_overlay={"state_dict": state}), edge)
    except Exception:  # whatever timm raises for what it can't do
        return False


def _made(name: str, **options: Any) -> nn.Module:
    with torch.device("meta"):
        module: nn.Module = timm.create_model(name, num_classes=CLASSES, **options)
    return module.eval()


def _takes(module: nn.Module, edge: int) -> bool:
    try:
        with torch.inference_mode():
            answers = module(torch.zeros(2, 3, edge, edge, device="meta"))
    except Exception:  # whatever the model raises for images that are too small
        return False
    return isinstance(answers, Tensor) and tuple(answers.shape) == (2, CLASSES)


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """The row of each model that tuner can train; the others are named."""
    for name in timm.list_models():
        try:
            row = model_row(name)
        except Exception as error:  # one that can't be built without contents
            print(f"{name}: {type(error).__name__}: {error}".splitlines()[0])
            continue
        if row is None:
            print(f"{name}: left out")
        else:
            yield name, row


def write() -> None:
    """Write the table, a model per line."""
    warnings.filterwarnings("ignore")
    lines = [f" {json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in sorted(rows())]
    head = json.dumps(HEADER)[:-1]
    TABLE.write_text(head + ', "models": {\n' + ",\n".join(lines) + "}}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
