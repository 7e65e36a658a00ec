"""A winner in the layout of the Hugging Face hub: a folder that timm and transformers load, and that may be pushed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from math import floor
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from tuner.errors import RunFolderError
from tuner.inspection.best import LoadedModel, declared_trial
from tuner.train.models.hubs import HubNetwork, silence_transformers
from tuner.train.models.timms import timms_settings
from tuner.trial.framing import Framing
from tuner.trial.hub_rows import CONFIG, PROCESSOR, RESAMPLE, RGB
from tuner.trial.models import TORCHVISION
from tuner.trial.tasks import ONE_LABEL

TIMM, TRANSFORMERS = "timm", "transformers"
OF_THE_MODEL = ("first_conv", "classifier", "fixed_input_size", "pool_size", "license")  # in timm's configurations
Reader = Callable[[Path], np.ndarray]  # an image file to probabilities [classes]


def write_hub(loaded: LoadedModel, file: Path) -> None:
    """Write weights, configuration and processor. Raises RunFolderError if neither library has such a model."""
    reason = _reason_against(loaded)
    if reason is None:
        reason = (_write_transformers if isinstance(loaded.module, HubNetwork) else _write_timm)(loaded, file)
    if reason is not None:
        raise RunFolderError(
            f"the hub's layout needs one network of timm or transformers that gives each RGB image one class, got "
            f"{reason}; use --to onnx, or --to safetensors"
        )


def hub_network(folder: Path) -> nn.Module:
    """The network of such a folder, by its own library: normalised images to logits."""
    if is_timms(folder):
        import timm

        module: nn.Module = timm.create_model(f"local-dir:{folder}", pretrained=True)
        return module.eval()
    from transformers import AutoModelForImageClassification

    silence_transformers()
    return HubNetwork(AutoModelForImageClassification.from_pretrained(folder)).eval()


def is_timms(folder: Path) -> bool:
    """Whether a folder has timm's layout, which transformers reads, too."""
    return "pretrained_cfg" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))


def readers(folder: Path, labels: tuple[str, ...]) -> dict[str, Reader]:
    """How each library that loads a folder answers to image files, with the steps that it documents."""
    from transformers import pipeline

    silence_transformers()
    ask = pipeline("image-classification", model=str(folder), device="cpu")

    def by_pipeline(path: Path) -> np.ndarray:
        scores = {each["label"]: each["score"] for each in ask(str(path), top_k=len(labels))}
        return np.array([scores[label] for label in labels])

    return {TRANSFORMERS: by_pipeline} | ({TIMM: _timms_reader(folder)} if is_timms(folder) else {})


def _timms_reader(folder: Path) -> Reader:
    import timm

    model, data = hub_network(folder), cast(Any, timm.data)
    transform = data.create_transform(**data.resolve_data_config({}, model=model))

    @torch.inference_mode()
    def answer(path: Path) -> np.ndarray:
        with Image.open(path) as image:
            return np.asarray(model(transform(image.convert("RGB"))[None]).softmax(1)[0])

    return answer


def _reason_against(loaded: LoadedModel) -> str | None:
    """What keeps either library from expressing the model, whatever its name; None if nothing does."""
    card = loaded.card
    reasons = {
        f"a model that the function {card.model} makes": card.is_function,
        "an average of several networks": card.networks > 1 or bool(card.parts),
        f"a model for {loaded.answers.outputs} of the task '{card.task}'": card.task != ONE_LABEL.name,
        f"a stem for images of {card.inputs.channels} channels": card.inputs.channels != len(RGB),
        "answers that are the mean for an image and its mirror image (test_time_flip)": card.test_time_flip,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _write_transformers(loaded: LoadedModel, file: Path) -> str | None:
    network: Any = loaded.module
    if network.options:
        return f"positions that are interpolated for images of {loaded.card.inputs.image_size} pixels"
    if type(network) is not HubNetwork:
        return "a head that sees other tokens than its library's (pooling, blocks)"
    model: Any = deepcopy(network.model)
    model.config.id2label = dict(enumerate(loaded.classes))
    model.config.label2id = {label: index for index, label in enumerate(loaded.classes)}
    model.save_pretrained(file.parent)
    _write(file.with_name(PROCESSOR), _processor(loaded))
    return None


def _write_timm(loaded: LoadedModel, file: Path) -> str | None:
    import timm

    facts = declared_trial(loaded.card).model_facts.for_images(loaded.card.inputs.image_size)
    settings = {"model_name": facts.name} if facts.library == TORCHVISION else timms_settings(facts)
    name, tensors = settings.pop("model_name"), loaded.module.state_dict()
    if not timm.is_model(name):
        return f"{facts.name}, which timm doesn't have"
    model: Any = timm.create_model(name, num_classes=len(loaded.classes), **settings).eval()
    try:
        model.load_state_dict(tensors)
    except RuntimeError:
        return f"{facts.name}, whose weights don't fit timm's (other names, or another head by pooling and blocks)"
    _write(file.with_name(CONFIG), _timms_config(loaded, name, settings, model))
    if not loaded.card.inputs.pillow:
        _write(file.with_name(PROCESSOR), _processor(loaded))
    save_file({key: value.contiguous().clone() for key, value in tensors.items()}, file)
    return None


def _timms_config(loaded: LoadedModel, name: str, settings: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """config.json as timm's `push_to_hf_hub` writes it; transformers finds the processor's class in it."""
    inputs, framing = loaded.card.inputs, loaded.card.inputs.framing
    resize = framing.resize or framing.pixels
    shares = framing.pixels / resize, framing.pixels / (resize + 0.5)  # timm rounds down what it divides by it
    told = {key: model.pretrained_cfg[key] for key in OF_THE_MODEL if model.pretrained_cfg.get(key) is not None}
    settings = {key: value for key, value in settings.items() if key != "drop_path_rate"}
    return {
        "architecture": name.partition(".")[0],
        "num_classes": len(loaded.classes),
        "num_features": model.num_features,
        "label_names": list(loaded.classes),
        **({"model_args": settings} if settings else {}),
        **({} if inputs.pillow else {"image_processor_type": _processor(loaded)["image_processor_type"]}),
        "pretrained_cfg": {
            **told,
            "custom_load": False,
            "num_classes": len(loaded.classes),
            "input_size": [inputs.channels, framing.pixels, framing.pixels],
            "interpolation": framing.interpolation,
            "crop_pct": next(share for share in shares if floor(framing.pixels / share) == resize),
            "crop_mode": "squash" if framing.squash else "center",
            "mean": list(inputs.normalisation.mean),
            "std": list(inputs.normalisation.sd),
        },
    }


def _processor(loaded: LoadedModel) -> dict[str, Any]:
    """preprocessor_config.json: the processor of transformers that frames images as training did.

    Perceiver's cuts the central square out before it resizes; Bit's resizes, and then cuts.
    """
    inputs = loaded.card.inputs
    own, sizes = _class_and_sizes(inputs.framing)
    return {
        "image_processor_type": own,
        **{"do_convert_rgb": True, "do_resize": True, "do_center_crop": True, "do_rescale": True},
        **sizes,
        "resample": {name: number for number, name in RESAMPLE.items()}[inputs.interpolation],
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(inputs.normalisation.mean),
        "image_std": list(inputs.normalisation.sd),
    }


def _class_and_sizes(framing: Framing) -> tuple[str, dict[str, Any]]:
    crop = {"height": framing.pixels, "width": framing.pixels}
    if framing.resize is None:
        return "PerceiverImageProcessor", {"size": crop, "crop_size": crop}
    square = {"height": framing.resize, "width": framing.resize}
    size = square if framing.squash else {"shortest_edge": framing.resize}
    return "BitImageProcessor", {"size": size, "crop_size": crop}


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
