"""What is known about models by name without importing torch: a table for each library, in `libraries/`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.errors import StudyError, shown
from tuner.machine.installation import is_installed
from tuner.space.values import is_one_of
from tuner.storage.hub import HubFile, hub_address
from tuner.trial.framing import Framing, Preprocessing
from tuner.trial.hub_rows import hub_row
from tuner.trial.hyperparameters import closest
from tuner.trial.pooling import Pooling, Tokens

IMAGENET, PRETRAINED = "imagenet", "pretrained"  # both are a model's default weights
DEFAULTS = (IMAGENET, PRETRAINED)
TORCHVISION = "torchvision"  # the library whose names need no prefix
MEAN, SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of most weights; the tables have the others


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that a library publishes for a model.

    Attributes:
        name: the library's name, such as "IMAGENET1K_V2" in torchvision's enum
        url: where the library has the file
        preprocessing: what the weights expect of images
        min_size: edge in pixels that the model needs with these weights
        licence: an address, or the hub's name of it; empty if the library names none
        repository: OWNER/NAME on the Hugging Face hub; empty for a file that torch downloads
        commit: of the repository; None for the one that this machine knows as "main"
    """

    name: str
    url: str
    preprocessing: Preprocessing
    min_size: int
    licence: str = ""
    repository: str = ""
    commit: str | None = None

    @property
    def file(self) -> str:
        """The file's name on the server and in the cache."""
        return self.url.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """Where the hub's library or torch looks for the file and stores it."""
        return hub_folder() / "checkpoints" / self.file if self.hub_file is None else self.hub_file.path

    @property
    def server(self) -> str:
        """The address below which the library has all files."""
        return self.url.partition(self.repository or self.file)[0]

    @property
    def hub_file(self) -> HubFile | None:
        """The file on the Hugging Face hub; None if it isn't there."""
        return HubFile(self.repository, self.file, self.commit) if self.repository else None


@dataclass(frozen=True)
class ModelFacts:
    """A model's name, its published weights, and the image edge in pixels that it needs.

    The defaults are for a user's function, about which nothing is known. `fixed_size` says that the model takes exactly
    `min_size`, like vision transformers with a position embedding; with a `step` the library can also build it for
    multiples of this edge, and interpolates the positions of its weights. `default` names its "imagenet" weights. A
    model with stochastic depth skips residual blocks in training. `tokens` are those of a vision transformer, of which
    the head sees what `pooling` says; None: what it sees in its library. `library` is the library that has it.
    """

    name: str
    library: str = ""
    default: str = ""
    min_size: int = 1
    fixed_size: bool = False
    step: int | None = None
    stochastic_depth: bool = False
    batch_norm: bool = True
    tokens: Tokens | None = None
    pooling: Pooling | None = None
    published: Mapping[str, PublishedWeights] = field(default_factory=dict, compare=False)

    def check_image_size(self, pixels: int) -> None:
        """Raise StudyError unless the model works on images of this edge."""
        if self.step is not None:
            if pixels % self.step or not pixels:
                raise StudyError(
                    f"{self.name} takes images whose edge is a multiple of {self.step} pixels, got "
                    f"image_size={pixels}; use {max(1, round(pixels / self.step)) * self.step}"
                )
        elif self.fixed_size and pixels != self.min_size:
            raise StudyError(
                f"{self.name} takes images of {self.min_size} pixels only, got image_size={pixels}; "
                "leave image_size out"
            )
        elif pixels < self.min_size:
            raise StudyError(
                f"{self.name} needs images of at least {self.min_size} pixels, got image_size={pixels}; "
                "raise image_size or leave it out"
            )

    def image_size(self, preferred: int | None) -> int:
        """The edge in pixels to use if the space says nothing: `preferred` unless the model needs another."""
        return self.min_size if self.fixed_size else max(self.min_size, preferred or 0)

    def smallest_size(self, own: int) -> int:
        """The smallest edge in pixels that the model takes and that loses nothing of images of the edge `own`."""
        return max(own, self.min_size) if self.step is None else max(1, -(-own // self.step)) * self.step

    def sizes_like(self, edges: Sequence[int]) -> list[int]:
        """The edges in pixels, each as near below as the model takes it; empty for a model that takes only one."""
        if self.step is not None:
            return [max(1, edge // self.step) * self.step for edge in edges]
        return [] if self.fixed_size else [max(edge, self.min_size) for edge in edges]

    def find_weights(self, name: str) -> PublishedWeights:
        """The published weights called `name`: "pretrained", "imagenet", or a name of the library's.

        Raises:
            StudyError: the model has no such weights; the message names those that it has.
        """
        found = self.published.get(self.default if name in DEFAULTS else name)
        if found is None and not self.published:
            raise StudyError(
                f"{self.library} publishes no weights of {self.name}, got weights={shown(name)}; use weights=None, or "
                "name the file of a saved state_dict"
            )
        if found is None:
            raise StudyError(
                f"weights of {self.name} are {', '.join([IMAGENET, *self.published])}, got {shown(name)}; choose one, "
                "or name the file of a saved state_dict"
            )
        return found

    def with_weights(self, weights: PublishedWeights | None) -> ModelFacts:
        """The model with these weights instead of the default ones; some of them need larger images."""
        return self if weights is None else replace(self, min_size=weights.min_size, default=weights.name)

    def for_images(self, pixels: int | None) -> ModelFacts:
        """The model as it is built for images of this edge: another one if positions have to be interpolated."""
        return self if self.step is None or pixels is None else replace(self, min_size=pixels)

    def with_head_for(self, pooling: Pooling) -> ModelFacts:
        """The model with a head that sees this; raises StudyError if the model doesn't have it."""
        tokens, fix = self.tokens, "leave it out, or write .when(model=[...]) with models that can have it"
        if tokens is None:
            raise StudyError(
                f"pooling and blocks need a vision transformer whose tokens are known, got {self.name}; {fix}"
            )
        if pooling.needs_class_token and not tokens.class_token:
            raise StudyError(
                f"pooling='{pooling.kind}' needs a model with a class token, got {self.name}, which only has patches; "
                f"use 'mean', {fix}"
            )
        if pooling.blocks > tokens.blocks:
            raise StudyError(
                f"blocks={pooling.blocks} needs as many last blocks of one width, got {self.name}, which has "
                f"{tokens.blocks}; {fix}"
            )
        return self if tokens.blocks == 1 else replace(self, pooling=pooling)  # such a model's own head sees the mean

    def check_installed(self) -> None:
        """Raise StudyError if the model's library isn't installed; it isn't imported for that."""
        table = _table(self.library) if self.library else {}
        module = table.get("module", self.library)
        if self.library and not is_installed(module):
            extra = table.get("extra", "train")
            raise StudyError(
                f"model='{self.name}' needs {module}, got an installation without it; "
                f"pip install 'image-tuner[{extra}]'"
            )


def model_facts() -> dict[str, ModelFacts]:
    """The classification models of all libraries by name."""
    return {name: facts for library in _libraries() for name, facts in _models_of(library).items()}


@cache
def _models_of(library: str) -> dict[str, ModelFacts]:
    """A library's classification models by name, with the library in front unless that is torchvision: "timm:NAME"."""
    table = _table(library)
    prefix = "" if library == TORCHVISION else f"{library}:"
    return {
        f"{prefix}{name}": _facts(f"{prefix}{name}", library, table, told) for name, told in table["models"].items()
    }


@cache
def _table(library: str) -> dict[str, Any]:
    """What a library's file says."""
    text = files("tuner.trial").joinpath("libraries", f"{library}.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


@cache
def _libraries() -> list[str]:
    """The libraries that have a table; its file has the library's name."""
    folder = files("tuner.trial").joinpath("libraries")
    return sorted((file.name.removesuffix(".json") for file in folder.iterdir()), key=lambda name: name != TORCHVISION)


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


def find_model(name: str, commits: Mapping[str, str] = MappingProxyType({})) -> ModelFacts:
    """The facts of the model called `name`; `commits` are those of repositories on the hub.

    Raises:
        StudyError: no library has such a classification model; the message names the nearest one.
    """
    library = name.partition(":")[0] if isinstance(name, str) and ":" in name else TORCHVISION
    if library not in _libraries():
        starts = " or ".join(f"'{each}:'" for each in _libraries() if each != TORCHVISION)
        raise StudyError(
            f"model must be a name of torchvision's, or start with {starts}, got {shown(name)}; correct what is before "
            "the colon"
        )
    known = _models_of(library)
    if is_one_of(name, known):
        return known[name]
    if _table(library).get("configured") and isinstance(name, str):
        return _facts(name, library, _table(library), hub_row(name, commits))
    plain, _, weights = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if plain in known and weights in known[plain].published:  # timm's own spelling of a model with its weights
        return replace(known[plain].with_weights(known[plain].find_weights(weights)), name=name)
    prefix = "" if library == TORCHVISION else f"{library}:"
    near = closest(name.removeprefix(prefix).lower(), _table(library)["models"]) if isinstance(name, str) else None
    hint = (
        f"did you mean '{prefix}{near}'?"
        if near
        else f"for example {', '.join(map(repr, _table(library)['examples']))}"
    )
    raise StudyError(f"model must be one of {library}'s classification models, got {shown(name)}; {hint}")


def hub_folder() -> Path:
    """Torch's hub folder, found as `torch.hub.get_dir()` finds it when nobody has called `set_dir`."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{cache_home}/torch")).expanduser() / "hub"


def _facts(name: str, library: str, table: Mapping[str, Any], told: Mapping[str, Any]) -> ModelFacts:
    """Facts from a row of a table; the row leaves out what is the same for most models."""
    row = {"default": next(iter(told.get("weights", {})), ""), **table.get("each_model", {}), **told}
    weights = {each: {**table.get("each_weights", {}), **facts} for each, facts in row.pop("weights", {}).items()}
    repository = table.get("repository", "").replace("MODEL", name.rpartition(":")[2])
    published = {
        each: _weights(each, table.get("address", ""), {"min_size": row["min_size"], "repository": repository, **facts})
        for each, facts in weights.items()
    }
    tokens = Tokens(**row.pop("tokens")) if "tokens" in row else None
    return ModelFacts(name, library, published=published, tokens=tokens, **row)


def _weights(name: str, address: str, told: Mapping[str, Any]) -> PublishedWeights:
    framing = Framing(
        *(told["size"], told.get("resize", told["size"]), told["interpolation"]),
        squash=told.get("squash", False),
        pillow=told.get("pillow", False),
    )
    preprocessing = Preprocessing(framing, tuple(told.get("mean", MEAN)), tuple(told.get("sd", SD)))
    repository = told["repository"].replace("WEIGHTS", name)
    folder = f"{hub_address()}{repository}/resolve/main/" if repository else address
    return PublishedWeights(
        *(name, folder + told["file"], preprocessing, told["min_size"], told.get("licence", "")),
        repository=repository,
        commit=told.get("commit"),
    )
