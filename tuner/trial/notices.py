"""What of a study with an image classifier can work, but is hardly meant so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.space import Choice, Float, GridSearch, Integer, Space

if TYPE_CHECKING:
    from tuner.trial.classifier import ImageClassifier

DEFAULT_MODEL = "resnet18"


def notices(trial: ImageClassifier, space: Space, max_epochs: int) -> list[str]:
    """Sentences, each with what it costs and what to do instead; `trial` knows its space."""
    return [
        *_of_the_model(trial, space),
        *_of_the_length(space, max_epochs),
        *_of_the_weights(trial, space),
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


def _of_the_images(trial: ImageClassifier, space: Space) -> Iterator[str]:
    first, own = trial.each[0], trial.source.native_size
    pixels = first.default_image_size
    if pixels is None or _values(space, "image_size"):
        return
    if first.published is None and first.weights_file is not None and own is None:
        yield (
            f"nothing is known of what {first.weights_file} expects, so images come at {pixels} pixels; set "
            "image_size to what it was trained with"
        )
    elif first.published is not None and own and pixels > own:
        yield (
            f"images of {trial.source.name} are enlarged from {own} to {pixels} pixels, as the weights expect; "
            f"image_size={max(own, first.model_facts.min_size)} is quicker and less accurate"
        )


def _values(space: Space, name: str) -> list[Any]:
    """The values that a hyperparameter may have, of a range both ends; empty where the space leaves it out."""
    if name in space.constants:
        return [space.constants[name]]
    domain = space.dimensions.get(name)
    if isinstance(domain, Choice | GridSearch):
        return list(domain.values())
    return [domain.low, domain.high] if isinstance(domain, Float | Integer) else []
