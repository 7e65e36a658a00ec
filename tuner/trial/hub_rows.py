"""Models of the Hugging Face hub: a row as in `libraries/`, made of a repository's two configuration files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tuner.errors import StudyError, WeightsError, shown
from tuner.storage.hub import HubFile
from tuner.trial.stored import errors_about_hub

WEIGHTS = "main"  # the only weights that a repository has
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
FILES = ("model.safetensors", "pytorch_model.bin")  # either has the weights; the first is fetched if neither is here
INTERPOLATING = ("vit", "deit", "dinov2", "dinov2_with_registers", "siglip")  # transformers fits their positions
PREFIXES = {  # tokens before the patches without registers; the class token is the first
    **dict.fromkeys(("vit", "vit_msn", "dinov2", "dinov2_with_registers", "beit", "data2vec-vision"), 1),
    **{"deit": 2, "siglip": 0, "ijepa": 0},
}
PATCHES_ONLY = ("swin", "swinv2")  # their blocks get wider towards the output
RGB = range(3)
USUAL_BLOCKS = 12  # in transformers' configurations that don't say how many
RESAMPLE = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
FROM_SQUASHED = 384  # edge from which ConvNeXt's processor brings both sides to the size


def hub_row(name: str, commits: Mapping[str, str]) -> dict[str, Any]:
    """The row of the model called hf:OWNER/NAME; its configuration is downloaded if it isn't in the hub's cache.

    Raises:
        StudyError: the name isn't of this form, or the model or its images are of a kind that tuner doesn't know.
        WeightsError: a configuration file is missing and can't be fetched, or damaged.
    """
    repository = name.partition(":")[2]
    if re.fullmatch(r"[^\W_][\w.-]*/[^\W_][\w.-]*", repository) is None:
        raise StudyError(
            f"a model of the hub is 'hf:OWNER/NAME', got {shown(name)}; for example 'hf:facebook/dinov2-small'"
        )
    commit = commits.get(repository)
    config, processor = (_read(name, HubFile(repository, file, commit)) for file in (CONFIG, PROCESSOR))
    weights = {**_images(name, processor), "commit": commit, "file": _file(repository, commit)}
    weights["licence"] = f"see https://huggingface.co/{repository}"  # neither file names it
    row: dict[str, Any] = {"weights": {WEIGHTS: weights}}
    vision = config.get("vision_config") or config
    patch, kind = vision.get("patch_size"), config.get("model_type")
    if patch is not None and kind != "convnext":
        row |= {"fixed_size": True, "min_size": weights["size"], "batch_norm": False}
        row |= {"step": patch} if kind in INTERPOLATING else {}
    if kind in PREFIXES:
        row["tokens"] = {"blocks": vision.get("num_hidden_layers", USUAL_BLOCKS), "class_token": PREFIXES[kind] > 0}
    elif kind in PATCHES_ONLY:
        row["tokens"] = {"blocks": 1}
    return row


def _file(repository: str, commit: str | None) -> str:
    return next((file for file in FILES if HubFile(repository, file, commit).path.is_file()), FILES[0])


def _read(name: str, file: HubFile) -> dict[str, Any]:
    with errors_about_hub(name, file, configures=True):
        path = file.fetch()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError(f"it holds a {type(found).__name__}")
    except (OSError, ValueError, TypeError) as error:
        raise WeightsError(
            f"{file.name} of {name} must be a JSON object, got {path}: {error}; fetch it again"
        ) from error
    return found


def _images(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """What the processor does with images, in the words of a table's row."""
    try:
        return _framing(told) | {
            "interpolation": RESAMPLE[told.get("resample", 2)],
            "mean": [float(told["image_mean"][i]) for i in RGB] if told.get("do_normalize", True) else [0.0] * len(RGB),
            "sd": [float(told["image_std"][i]) for i in RGB] if told.get("do_normalize", True) else [1.0] * len(RGB),
        }
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise StudyError(
            f"{PROCESSOR} of {name} must bring images to one square size by bilinear or bicubic resizing, got "
            f"{type(error).__name__} for {error}; choose another model"
        ) from error


def _framing(told: Mapping[str, Any]) -> dict[str, Any]:
    size = told["size"] if isinstance(told["size"], Mapping) else {"shortest_edge": told["size"]}
    if not told.get("do_resize", True) or told.get("rescale_offset") or told.get("rescale_factor", 1 / 255) != 1 / 255:
        raise ValueError("its rescaling")
    if "height" in size:
        edge = _square(size)
        cropped = _square(told["crop_size"]) if told.get("do_center_crop") else edge
        return {"size": cropped, "resize": edge, "squash": True}
    shortest = int(size["shortest_edge"])
    if "crop_pct" in told and shortest >= FROM_SQUASHED:
        return {"size": shortest, "resize": shortest, "squash": True}
    if "crop_pct" in told:
        return {"size": shortest, "resize": int(shortest / (told["crop_pct"] or 224 / 256))}
    return {"size": _square(told["crop_size"]), "resize": shortest}


def _square(size: Any) -> int:
    edges = {size} if isinstance(size, int) else {size["height"], size["width"]}
    if len(edges) > 1:
        raise ValueError("a size that isn't square")
    return int(edges.pop())
