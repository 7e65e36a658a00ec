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
INTERPOLATING = ("vit", "deit", "dinov2", "dinov2_with_registers", "siglip", "vit_msn", "ijepa")  # as transformers does
ANY_SIZE = (
    *("bit", "convnext", "convnextv2", "cvt", "efficientnet", "focalnet", "hgnet_v2", "mobilenet_v1", "mobilenet_v2"),
    *("mobilevit", "poolformer", "pvt_v2", "regnet", "resnet", "swiftformer", "textnet"),
)  # models of all other kinds only take the images that they are configured for
OWN_KINDS = (*INTERPOLATING, *ANY_SIZE, "beit", "clip", "swin", "swinv2")  # whose code transformers certainly has
OF_IMAGES = ("num_channels", "image_size", "patch_size")
OF_TIMM = "timm/"  # timm's own repositories, which have no processor
WITH_BATCH_NORM = ("levit", *(kind for kind in ANY_SIZE if kind not in ("convnext", "convnextv2", "focalnet", "bit")))
DEPTH = "drop_path_rate"  # how transformers' configurations call stochastic depth
PREFIXES = {  # tokens before the patches without registers; the class token is the first
    **dict.fromkeys(("vit", "vit_msn", "dinov2", "dinov2_with_registers", "beit", "data2vec-vision"), 1),
    **{"deit": 2, "siglip": 0, "ijepa": 0},
}
PATCHES_ONLY = ("swin", "swinv2")  # their blocks get wider towards the output
RGB = range(3)
USUAL_BLOCKS = 12  # in transformers' configurations that don't say how many
RESAMPLE = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
LARGEST_IMAGE = 2**14  # edge in pixels
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
    if repository.startswith(OF_TIMM):
        raise StudyError(
            f"a model of timm is 'timm:NAME', got {shown(name)}; use 'timm:{repository.removeprefix(OF_TIMM)}'"
        )
    commit = commits.get(repository)
    config, processor = (_read(name, HubFile(repository, file, commit)) for file in (CONFIG, PROCESSOR))
    weights = {**_images(name, processor), "commit": commit, "file": _file(repository, commit)}
    weights["licence"] = f"see https://huggingface.co/{repository}"  # neither file names it
    row: dict[str, Any] = {"weights": {WEIGHTS: weights}}
    kind, vision = config.get("model_type"), config.get("vision_config") or config
    _check_kind(name, kind, vision, config)
    row["batch_norm"] = kind in WITH_BATCH_NORM
    row["stochastic_depth"] = isinstance(vision.get(DEPTH), float)
    if kind not in ANY_SIZE:
        row |= {"fixed_size": True, "min_size": weights["size"]}
        row |= {"step": vision.get("patch_size")} if kind in INTERPOLATING else {}
        _check_size(name, weights["size"], row.get("step"), vision.get("image_size"))
    if kind in PREFIXES:
        row["tokens"] = {"blocks": vision.get("num_hidden_layers", USUAL_BLOCKS), "class_token": PREFIXES[kind] > 0}
    elif kind in PATCHES_ONLY:
        row["tokens"] = {"blocks": 1}
    return row


def _check_kind(name: str, kind: object, vision: Any, config: Mapping[str, Any]) -> None:
    """Raise StudyError unless the configuration is of a model that takes images and needs no code of its own."""
    whole = isinstance(kind, str) and isinstance(vision, Mapping)
    own_code = kind not in OWN_KINDS and "auto_map" in config
    if not whole or own_code or (kind not in OWN_KINDS and not any(key in vision for key in OF_IMAGES)):
        code = " with code of its own (auto_map)" if own_code else ""
        raise StudyError(
            f"{CONFIG} of {name} must describe a model of transformers that takes images, got "
            f"model_type={shown(kind)}{code}; choose another model"
        )


def _check_size(name: str, pixels: int, step: object, own: object) -> None:
    """Raise StudyError if the processor brings images to a size that the model can't take."""
    if step is None:
        fits = own in (None, pixels, [pixels, pixels])
    else:
        fits = isinstance(step, int) and step > 0 and pixels % step == 0
    if not fits:
        takes = f"the {shown(own)} pixels" if step is None else f"a multiple of the {shown(step)} pixels"
        raise StudyError(
            f"{PROCESSOR} of {name} must bring images to {takes} in {CONFIG}, got {pixels}; choose another model"
        )


def _file(repository: str, commit: str | None) -> str:
    return next((file for file in FILES if HubFile(repository, file, commit).path.is_file()), FILES[0])


def _read(name: str, file: HubFile) -> dict[str, Any]:
    with errors_about_hub(name, file, configures=True):
        path = file.fetch()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError(f"it holds a {type(found).__name__}")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise WeightsError(
            f"{file.name} of {name} must be a JSON object, got {path}: {error}; fetch it again"
        ) from error
    return found


def _images(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """What the processor does with images, in the words of a table's row."""
    normalised = told.get("do_normalize", True)
    try:
        return _framing(told) | {
            "interpolation": RESAMPLE[told.get("resample", 2)],
            "mean": [float(told["image_mean"][i]) if normalised else 0.0 for i in RGB],
            "sd": [_positive(told["image_std"][i]) if normalised else 1.0 for i in RGB],
        }
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
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
    shortest = int(_positive(size["shortest_edge"]))
    if "crop_pct" in told and shortest >= FROM_SQUASHED:
        return {"size": shortest, "resize": shortest, "squash": True}
    if "crop_pct" in told:
        return {"size": shortest, "resize": int(shortest / (told["crop_pct"] or 224 / 256))}
    return {"size": _square(told["crop_size"]), "resize": shortest}


def _square(size: Any) -> int:
    edges = {size} if isinstance(size, int) else {size["height"], size["width"]}
    if len(edges) > 1:
        raise ValueError("a size that isn't square")
    return int(_positive(edges.pop()))


def _positive(value: Any) -> float:
    if not 0 < float(value) <= LARGEST_IMAGE:
        raise ValueError(f"{value}, which is too small or too large")
    return float(value)
