"""Facts about torchvision's classification models without importing torch, from `models.json`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.errors import StudyError, shown
from tuner.space.values import is_one_of
from tuner.trial.framing import Framing, Preprocessing
from tuner.trial.hyperparameters import closest

IMAGENET = "imagenet"  # a model's default weights
MEAN, SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of most weights; models.json has the others
SIZES = ("size", "resize", "interpolation")
STOCHASTIC_DEPTH = ("efficientnet", "convnext", "swin", "maxvit")  # what names of models that have it start with
NO_BATCH_NORM = ("alexnet", "convnext", "squeezenet", "swin", "vit")  # and of those without one


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that torchvision publishes for a model.

    Attributes:
        name: as in torchvision's enum, "IMAGENET1K_V2"
        file: what torchvision calls it on its server and in its cache
        preprocessing: what the weights expect of images
        min_size: edge in pixels that the model needs with these weights
        licence: an address; empty where torchvision names none
    """

    name: str
    file: str
    preprocessing: Preprocessing
    min_size: int
    licence: str = ""

    @property
    def path(self) -> Path:
        """Where torchvision looks for the file and keeps it."""
        return hub_folder() / "checkpoints" / self.file


@dataclass(frozen=True)
class ModelFacts:
    """A model's name, its published weights, and the image edge in pixels that it needs.

    The defaults are those of a model that is the user's function, of which nothing is known. `fixed_size` says that it
    takes exactly `min_size`, as vision transformers with their position embedding do. `default` names its "imagenet"
    weights.
    """

    name: str
    default: str = ""
    min_size: int = 1
    fixed_size: bool = False
    published: Mapping[str, PublishedWeights] = field(default_factory=dict, compare=False)

    def check_image_size(self, pixels: int) -> None:
        """Raise StudyError unless the model works on images of this edge."""
        if self.fixed_size and pixels != self.min_size:
            raise StudyError(
                f"{self.name} takes images of {self.min_size} pixels only, got image_size={pixels}; "
                "leave image_size out"
            )
        if pixels < self.min_size:
            raise StudyError(
                f"{self.name} needs images of at least {self.min_size} pixels, got image_size={pixels}; "
                "raise image_size or leave it out"
            )

    def image_size(self, preferred: int | None) -> int:
        """The edge in pixels to use where the space says nothing: `preferred` unless the model needs another."""
        return self.min_size if self.fixed_size else max(self.min_size, preferred or 0)

    def find_weights(self, name: str) -> PublishedWeights:
        """The published weights called `name`: "imagenet", or a name of torchvision's enum.

        Raises:
            StudyError: the model has no such weights; those that it has are named.
        """
        found = self.published.get(self.default if name == IMAGENET else name)
        if found is None:
            raise StudyError(
                f"weights of {self.name} are {', '.join([IMAGENET, *self.published])}, got {shown(name)}; choose one, "
                "or name the file of a saved state_dict"
            )
        return found

    def with_weights(self, weights: PublishedWeights | None) -> ModelFacts:
        """The model with these weights, with some of which it takes larger images."""
        return self if weights is None else replace(self, min_size=weights.min_size)


@cache
def model_facts() -> dict[str, ModelFacts]:
    """All of torchvision's classification models by name."""
    table = json.loads(files("tuner.trial").joinpath("models.json").read_text(encoding="utf-8"))
    return {name: _facts(name, facts) for name, facts in table.items()}


def looks_published(weights: str) -> bool:
    """Whether a text is written as torchvision's names of weights are, with or without the class in front."""
    return re.fullmatch(r"(\w+_Weights\.)?(IMAGENET1K_\w+|DEFAULT)", weights) is not None


@cache
def weights_names() -> frozenset[str]:
    """The names that published weights of any model have, "imagenet" aside."""
    return frozenset(name for facts in model_facts().values() for name in facts.published)


def has_stochastic_depth(name: str) -> bool:
    """Whether a torchvision model leaves residual blocks out in training."""
    return name.startswith(STOCHASTIC_DEPTH)


def has_batch_norm(name: str) -> bool:
    """Whether a torchvision model has batch norms."""
    return not name.startswith(NO_BATCH_NORM) and (not name.startswith("vgg") or name.endswith("_bn"))


def find_model(name: str) -> ModelFacts:
    """The facts of the model called `name`.

    Raises:
        StudyError: torchvision has no such classification model; the nearest one is named.
    """
    known = model_facts()
    if is_one_of(name, known):
        return known[name]
    near = closest(name.lower(), known) if isinstance(name, str) else None
    hint = f"did you mean '{near}'?" if near else "for example 'resnet18', 'efficientnet_b0', 'convnext_tiny'"
    raise StudyError(f"model must be one of torchvision's classification models, got {shown(name)}; {hint}")


def hub_folder() -> Path:
    """Torch's hub folder, found as `torch.hub.get_dir()` finds it when nobody has called `set_dir`."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{cache_home}/torch")).expanduser() / "hub"


def _facts(name: str, told: Mapping[str, Any]) -> ModelFacts:
    published = {each: _weights(each, facts, told["min_size"]) for each, facts in told["weights"].items()}
    return ModelFacts(name, told["default"], told["min_size"], told["fixed_size"], published)


def _weights(name: str, told: Mapping[str, Any], min_size: int) -> PublishedWeights:
    preprocessing = Preprocessing(
        Framing(*(told[part] for part in SIZES)), tuple(told.get("mean", MEAN)), tuple(told.get("sd", SD))
    )
    return PublishedWeights(name, told["file"], preprocessing, told.get("min_size", min_size), told.get("licence", ""))
