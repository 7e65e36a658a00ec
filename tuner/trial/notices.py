"""Settings of a study with an image classifier that are allowed but probably not intended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.space import Choice, Float, GridSearch, Integer, Space
from tuner.trial.image_hyperparameters import CHANGES_IMAGES
from tuner.trial.models import find_model

if TYPE_CHECKING:
    from tuner.trial.classifier import ImageClassifier

DEFAULT_MODEL = "resnet18"


def notices(trial: ImageClassifier, space: Space, max_epochs: int) -> list[str]:
    """Sentences, each with what it costs and what to do instead; `trial` knows its space."""
    return [
        *_of_the_model(trial, space),
        *_of_the_length(space, max_epochs),
        *_of_the_weights(trial, space),
        *_of_what_learns(trial, space, max_epochs),
        *_of_augmentation(space),
        *_of_the_images(trial, space),
    ]


def _of_the_model(trial: ImageClassifier, space: Space) -> Iterator[str]:
    if trial.candidates and trial.model not in (DEFAULT_MODEL, *trial.candidates):
        yield f"model='{trial.model}' is never tried: `model` in the space wins over ImageClassifier(model=...)"


def _of_the_length(space: Space, max_epochs: int) -> Iterator[str]:
    longest = max((value for value in _values(space, "epochs") if isinstance(value, int | float)), default=0)
    if longest > max_epochs:
        yield (
            f"epochs={longest:g} is cut to the budget's max_epochs={max_epochs}; raise Budget(max_epochs=...), or "
            "lower epochs"
        )


def _of_the_weights(trial: ImageClassifier, space: Space) -> Iterator[str]:
    frozen = [value for value in ("head", "gradual") if value in _values(space, "finetune")]
    if isinstance(trial.model, str) and trial.weights_file is None and frozen:
        yield (
            f"finetune='{frozen[0]}' with weights=None trains the last layer on features of random weights; use "
            "weights='imagenet', or finetune='all'"
        )


def _of_what_learns(trial: ImageClassifier, space: Space, max_epochs: int) -> Iterator[str]:
    probe = [value for value in _values(space, "probe_epochs") if isinstance(value, int | float)]
    if "lp-ft" not in _values(space, "finetune"):
        for name in ("probe_epochs", "probe_lr"):
            if _values(space, name):
                yield f"{name} changes nothing without finetune='lp-ft'; leave it out, or set finetune"
    elif max(probe, default=0) >= max_epochs:
        yield (
            f"probe_epochs={max(probe):g} leaves none of max_epochs={max_epochs} to train all layers; lower "
            "probe_epochs, or raise Budget(max_epochs=...)"
        )
    named = [each.model for each in trial.each if isinstance(each.model, str)]
    without = [model for model in named if not find_model(model).batch_norm]
    if without and True in _values(space, "freeze_batch_norm"):
        yield f"freeze_batch_norm changes nothing for {', '.join(without)}, which has no batch norm; leave it out"


def _of_augmentation(space: Space) -> Iterator[str]:
    for name in ("rand_augment_operations", "rand_augment_magnitude"):
        if _values(space, name) and "rand" not in _values(space, "auto_augment"):
            yield f"{name} changes nothing without auto_augment='rand'; leave it out, or set auto_augment"
    changing = [name for name in CHANGES_IMAGES if any(value not in (0, "none") for value in _values(space, name))]
    if changing and _values(space, "finetune") == ["head"]:
        yield (
            f"{changing[0]} changes the images in every epoch, so finetune='head' runs the whole network each time; "
            "without it, the frozen layers' features are computed once"
        )


def _of_the_images(trial: ImageClassifier, space: Space) -> Iterator[str]:
    first, own = trial.each[0], trial.source.native_size
    pixels = first.default_image_size
    if pixels is None or _values(space, "image_size"):
        return
    if first.published is None and first.weights_file is not None and own is None:
        yield (
            f"it is unknown what {first.weights_file} expects, so images are resized to {pixels} pixels; set "
            "image_size to what it was trained with"
        )
    elif first.published is not None and own and pixels > own:
        yield (
            f"images of {trial.source.name} are enlarged from {own} to {pixels} pixels, as the weights expect; "
            f"image_size={max(own, first.model_facts.min_size)} is quicker and less accurate"
        )


def _values(space: Space, name: str) -> list[Any]:
    """The values that a hyperparameter may have, for a range both ends; empty if the space leaves it out."""
    if name in space.constants:
        return [space.constants[name]]
    domain = space.dimensions.get(name)
    if isinstance(domain, Choice | GridSearch):
        return list(domain.values())
    return [domain.low, domain.high] if isinstance(domain, Float | Integer) else []
