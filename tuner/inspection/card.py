"""`model.json` in `best/`: facts that the weights file lacks, and which files belong together."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from tuner.errors import RunFolderError
from tuner.storage.folder import LocalFolder
from tuner.storage.regular_files import sha256
from tuner.train.checkpoint import MODEL
from tuner.train.data import Normalisation
from tuner.trial.framing import Framing, Interpolation
from tuner.trial.pixels import DeepScale
from tuner.trial.splitting import MOST_FOLDS, REFIT
from tuner.trial.tasks import ONE_LABEL, TASKS

CARD = "model.json"
FILES = "files"  # key of the sha256 of all other files by name; older runs lack it
TRAIN = "train"
LARGEST_NUMBER = 1e30
MOST_BITS = 32
LARGEST_IMAGE = 2**14  # edge in pixels; a damaged number would request all memory


@dataclass(frozen=True)
class Inputs:
    """What a model takes.

    Attributes:
        channels: 1 for grey images, 3 for RGB
        image_size: edge in pixels
        normalisation: of the weights, or of the training images
        resize: length of the shorter side before the centre is cut out; None: the whole square is resized
        interpolation: how
        scale: of deep images in files; None if an earlier version trained it, which guessed it for each file
        squash, pillow: see `Framing`
    """

    channels: int
    image_size: int
    normalisation: Normalisation
    resize: int | None = None
    interpolation: Interpolation = "bilinear"
    scale: DeepScale | None = None
    squash: bool = False
    pillow: bool = False

    @property
    def framing(self) -> Framing:
        """How an image is brought to the model's size."""
        return Framing(self.image_size, self.resize, self.interpolation, self.squash, self.pillow)


@dataclass(frozen=True)
class Part:
    """A network of a model that averages the answers of several trials, see `tuner.train.models.Member`.

    Attributes:
        model, weights, commit: as in `ModelCard`
        config: hyperparameters of one of its trials, as JSON has them
        image_size: edge in pixels of the images that it takes
        normalisation: that it expects
        trials: whose last layers it has, side by side; those of a cross-validation each in turn
        shares: of each of these layers in the answers
        scales: factors of their outputs; none for 1
    """

    model: str
    weights: str
    config: Mapping[str, Any]
    image_size: int
    normalisation: Normalisation
    trials: tuple[str, ...]
    shares: tuple[float, ...]
    commit: str | None = None
    scales: tuple[float, ...] = ()

    @property
    def is_function(self) -> bool:
        """Whether a user's function makes it."""
        return self.model.endswith("()")

    @classmethod
    def from_dict(cls, part: Mapping[str, Any], channels: int) -> Part:
        """The part from plain data; raises as `ModelCard.from_dict`."""
        if not isinstance(part["config"], dict) or not isinstance(part["shares"], list):
            raise TypeError("a part has a configuration and shares")
        return cls(
            **{name: _text(name, part[name]) for name in ("model", "weights")},
            config=part["config"],
            image_size=_count("image_size", part["image_size"], LARGEST_IMAGE),
            normalisation=_normalisation(part["normalisation"], channels),
            trials=_names(part["trials"]),
            shares=_numbers("shares", part["shares"], len(part["trials"]), positive=True),
            commit=None if part.get("commit") is None else _text("commit", part["commit"]),
            scales=_numbers("scales", part["scales"], len(part["trials"]), positive=True) if part.get("scales") else (),
        )


@dataclass(frozen=True)
class ModelCard:
    """`model.json`: facts that `model.safetensors` lacks.

    Attributes:
        model: the library's name, or that of the user's function with brackets
        data: what it was trained on, as the study file has it
        weights: what training started from, as the study file has it
        classes: names of its outputs, in their order
        inputs: what images it takes
        networks: how many networks of a cross-validation predict together; 1 for a single one
        trained_on: "train", or "train+validation" for a winner that was trained again on both
        test_time_flip: whether predictions are the mean over an image and its mirror image
        commit: OWNER/NAME@COMMIT on the Hugging Face hub, by which the model is built; None for others
        task: the name of what labels are; winners of earlier versions have one
        parts: the networks of several trials whose answers are averaged; empty for those of one trial
    """

    model: str
    data: str
    weights: str
    classes: tuple[str, ...]
    inputs: Inputs
    networks: int = 1
    trained_on: str = TRAIN
    test_time_flip: bool = False
    commit: str | None = None
    task: str = ONE_LABEL.name
    parts: tuple[Part, ...] = ()

    @property
    def is_function(self) -> bool:
        """Whether the model is one that a user's function makes."""
        return self.model.endswith("()") or any(part.is_function for part in self.parts)

    @classmethod
    def from_dict(cls, card: Mapping[str, Any]) -> ModelCard:
        """The card from plain data, as `dataclasses.asdict` and JSON give it.

        Raises:
            ValueError: a value is of another type, or impossible.
            KeyError, TypeError: something is missing.
        """
        inputs = card["inputs"]
        channels = _count("channels", inputs["channels"], LARGEST_IMAGE)
        return cls(
            **{name: _text(name, card[name]) for name in ("model", "data", "weights")},
            classes=_names(card["classes"]),
            inputs=Inputs(
                channels,
                _count("image_size", inputs["image_size"], LARGEST_IMAGE),
                _normalisation(inputs["normalisation"], channels),
                _resize(inputs),
                _interpolation(inputs),
                _scale(inputs.get("scale")),
                **{name: _switch(name, inputs.get(name, False)) for name in ("squash", "pillow")},
            ),
            networks=_count("networks", card.get("networks", 1), MOST_FOLDS),
            trained_on=_one_of("trained_on", card.get("trained_on", TRAIN), (TRAIN, REFIT)),
            test_time_flip=_switch("test_time_flip", card.get("test_time_flip", False)),
            commit=None if card.get("commit") is None else _text("commit", card["commit"]),
            task=_one_of("task", card.get("task", ONE_LABEL.name), tuple(TASKS)),
            parts=tuple(Part.from_dict(part, channels) for part in card.get("parts", ())),
        )


def read_card(best: Path) -> ModelCard:
    """The card of a folder; checks that the files belong together.

    Raises:
        RunFolderError: it has no complete card, or files of another winner, or changed ones.
    """
    try:
        plain = json.loads(LocalFolder(best).read(CARD).decode())
        files = plain.get(FILES, {}).items()
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise _without_card(best) from error
    try:
        card = ModelCard.from_dict(plain)
    except (KeyError, TypeError) as error:
        raise _without_card(best) from error
    except ValueError as error:
        raise RunFolderError(
            f"a model needs {CARD} as it was written, got {best} with {error}; name another run"
        ) from error
    _check_together(best, dict(files))
    return card


def _without_card(best: Path) -> RunFolderError:
    return RunFolderError(
        f"a model needs {CARD} and {MODEL}, got {best} without a complete {CARD}; name a run with a winner"
    )


def _check_together(best: Path, files: Mapping[str, Any]) -> None:
    """Raise RunFolderError if a file isn't the one with which the card was written."""
    try:
        other = [path.name for path in sorted(best.iterdir()) if path.is_file() and _differs(path, files)]
    except OSError as error:
        raise RunFolderError(
            f"a winner's files must be readable, got {error}; check the folder's permissions"
        ) from error
    if other:
        raise RunFolderError(
            f"a winner's files must belong together, got {best} whose {' and '.join(other)} doesn't match "
            f"{CARD}; copy the whole folder again, or name another run"
        )


def _differs(path: Path, files: Mapping[str, Any]) -> bool:
    return path.name in files and sha256(path) != files[path.name]


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}={reprlib.repr(value)}")
    return value


def _one_of(name: str, value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{name}={reprlib.repr(value)}")
    return str(value)


def _count(name: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name}={reprlib.repr(value)}")
    return value


def _switch(name: str, value: object) -> bool:
    if value not in (True, False):
        raise ValueError(f"{name}={reprlib.repr(value)}")
    return bool(value)


def _normalisation(told: Mapping[str, Any], channels: int) -> Normalisation:
    mean, sd = (_numbers(name, told[name], channels, positive=name == "sd") for name in ("mean", "sd"))
    return Normalisation(mean, sd)


def _resize(inputs: Mapping[str, Any]) -> int | None:
    """The resize of the inputs, which winners of earlier versions don't have."""
    resize = inputs.get("resize")
    if resize is None:
        return None
    if _count("resize", resize, LARGEST_IMAGE) < inputs["image_size"]:
        raise ValueError(f"resize={reprlib.repr(resize)}")
    return int(resize)


def _interpolation(inputs: Mapping[str, Any]) -> Interpolation:
    value = inputs.get("interpolation", "bilinear")
    if value not in get_args(Interpolation):
        raise ValueError(f"interpolation={reprlib.repr(value)}")
    return cast(Interpolation, value)


def _scale(scale: Mapping[str, Any] | None) -> DeepScale | None:
    if scale is None:
        return None
    bits, white = scale["bits"], scale["white"]
    return DeepScale(
        None if bits is None else _count("bits", bits, MOST_BITS),
        None if white is None else _numbers("white", [white], 1, positive=True)[0],
    )


def _numbers(name: str, values: object, count: int, *, positive: bool) -> tuple[float, ...]:
    """A tuple of as many finite numbers as there are channels."""
    if not isinstance(values, list) or len(values) != count or not all(_is_finite(value) for value in values):
        raise ValueError(f"{name}={reprlib.repr(values)}")
    if positive and min(values) <= 0:
        raise ValueError(f"{name}={reprlib.repr(values)}")
    return tuple(map(float, values))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST_NUMBER


def _names(values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise ValueError(f"classes={reprlib.repr(values)}")
    return tuple(values)
