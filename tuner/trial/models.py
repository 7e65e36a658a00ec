"""What is known about models by name without importing torch: a table for each library, in `libraries/`."""

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
MEAN, SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of most weights; the tables have the others
SIZES = ("size", "resize", "interpolation")


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that a library publishes for a model.

    Attributes:
        name: the library's name, such as "IMAGENET1K_V2" in torchvision's enum
        url: where the library has the file
        preprocessing: what the weights expect of images
        min_size: edge in pixels that the model needs with these weights
        licence: an address; empty if the library names none
    """

    name: str
    url: str
    preprocessing: Preprocessing
    min_size: int
    licence: str = ""

    @property
    def file(self) -> str:
        """The file's name on the server and in the cache."""
        return self.url.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """Where torch looks for the file and stores it."""
        return hub_folder() / "checkpoints" / self.file


@dataclass(frozen=True)
class ModelFacts:
    """A model's name, its published weights, and the image edge in pixels that it needs.

    The defaults are for a user's function, about which nothing is known. `fixed_size` says that the model takes exactly
    `min_size`, like vision transformers with a position embedding. `default` names its "imagenet" weights. A model with
    stochastic depth skips residual blocks in training. `library` is the library that has it.
    """

    name: str
    library: str = ""
    default: str = ""
    min_size: int = 1
    fixed_size: bool = False
    stochastic_depth: bool = False
    batch_norm: bool = True
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
        """The edge in pixels to use if the space says nothing: `preferred` unless the model needs another."""
        return self.min_size if self.fixed_size else max(self.min_size, preferred or 0)

    def find_weights(self, name: str) -> PublishedWeights:
        """The published weights called `name`: "imagenet", or a name of the library's.

        Raises:
            StudyError: the model has no such weights; the message names those that it has.
        """
        found = self.published.get(self.default if name == IMAGENET else name)
        if found is None:
            raise StudyError(
                f"weights of {self.name} are {', '.join([IMAGENET, *self.published])}, got {shown(name)}; choose one, "
                "or name the file of a saved state_dict"
            )
        return found

    def with_weights(self, weights: PublishedWeights | None) -> ModelFacts:
        """The model with these weights; some of them need larger images."""
        return self if weights is None else replace(self, min_size=weights.min_size)


@cache
def model_facts() -> dict[str, ModelFacts]:
    """The classification models of all libraries by name."""
    return {
        name: _facts(name, library, table["address"], told)
        for library, table in _libraries().items()
        for name, told in table["models"].items()
    }


@cache
def _libraries() -> dict[str, dict[str, Any]]:
    """Each library's table by the library's name, which is also the file's."""
    tables = sorted(files("tuner.trial").joinpath("libraries").iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8")) for file in tables}


def looks_published(weights: str) -> bool:
    """Whether a text is a name of weights, or has the form of torchvision's, with or without the class in front."""
    as_torchvisions = re.fullmatch(r"(\w+_Weights\.)?(IMAGENET1K_\w+|DEFAULT)", weights)
    return as_torchvisions is not None or weights in weights_names()


@cache
def weights_names() -> frozenset[str]:
    """The names that published weights of any model have, without "imagenet"."""
    return frozenset(name for facts in model_facts().values() for name in facts.published)


def families_with_stochastic_depth() -> list[str]:
    """The prefixes of such models' names: "efficientnet" and others."""
    return sorted({re.split(r"[_\d]", name)[0] for name, facts in model_facts().items() if facts.stochastic_depth})


def find_model(name: str) -> ModelFacts:
    """The facts of the model called `name`.

    Raises:
        StudyError: no library has such a classification model; the message names the nearest one.
    """
    known = model_facts()
    if is_one_of(name, known):
        return known[name]
    near = closest(name.lower(), known) if isinstance(name, str) else None
    hint = f"did you mean '{near}'?" if near else "for example 'resnet18', 'efficientnet_b0', 'convnext_tiny'"
    owners = " or ".join(f"{library}'s" for library in _libraries())
    raise StudyError(f"model must be one of {owners} classification models, got {shown(name)}; {hint}")


def hub_folder() -> Path:
    """Torch's hub folder, found as `torch.hub.get_dir()` finds it when nobody has called `set_dir`."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{cache_home}/torch")).expanduser() / "hub"


def _facts(name: str, library: str, address: str, told: Mapping[str, Any]) -> ModelFacts:
    """Facts from a row of a table; the row leaves out what is the same for most models."""
    told = dict(told)
    weights = told.pop("weights")
    published = {each: _weights(each, address, facts, told["min_size"]) for each, facts in weights.items()}
    return ModelFacts(name, library, published=published, **told)


def _weights(name: str, address: str, told: Mapping[str, Any], min_size: int) -> PublishedWeights:
    preprocessing = Preprocessing(
        Framing(*(told[part] for part in SIZES)), tuple(told.get("mean", MEAN)), tuple(told.get("sd", SD))
    )
    least = told.get("min_size", min_size)
    return PublishedWeights(name, address + told["file"], preprocessing, least, told.get("licence", ""))
