"""The trial that tuner brings along: fine-tuning an image classifier."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tuner.errors import StudyError, WeightsError, shown
from tuner.space import Choice, Domain, Float, GridSearch, Integer, Normal, Space
from tuner.space.values import is_number
from tuner.trial import hyperparameters, splitting
from tuner.trial.base import Direction, Trial
from tuner.trial.data_source import Source
from tuner.trial.folder_headers import FolderHeaders, folder_headers
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.hyperparameters import HYPERPARAMETERS
from tuner.trial.image_folder import Folder
from tuner.trial.models import ModelFacts, find_model
from tuner.trial.sources import Cifar10, find_source, function_name
from tuner.trial.strategies import STRATEGIES

METRICS: dict[str, Direction | None] = {  # what every epoch reports, and whether it is better high or low
    "val_accuracy": "max",
    "val_loss": "min",
    "val_top5_accuracy": "max",
    "val_f1": "max",
    "train_loss": "min",
    "learning_rate": None,
    "seconds": "min",
    "images_per_second": "max",
    "micro_batch_size": None,
    "oom_retries": "min",
    "memory_peak_bytes": "min",
    "memory_bytes": "min",
    "device_utilisation": "max",
    "device_memory_bytes": "min",
}
REPRODUCED = ("val_accuracy", "val_loss", "val_top5_accuracy", "val_f1", "train_loss", "learning_rate")

DataFunction = Callable[[], tuple[Any, Any, Any]]
ModelFunction = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class ImageClassifier(Trial):
    """Fine-tune an image classification model on a data set.

    Attributes:
        data: "digits" (scikit-learn's), "fashion-mnist", "cifar10", or "folder:PATH" with a class per subfolder;
            or a function without arguments that returns training, validation and test, each as a pair of tensors
            (images [N, C, H, W] uint8 or float, labels [N] int), or as a torch `Dataset` of (image, label).
        model: name of any torchvision classification model; or a function that makes an `nn.Module` from the trial's
            hyperparameters, among which the space may then have names of its own.
        weights: "imagenet" (torchvision's default ones, downloaded once), the path of a saved `state_dict`
            (.safetensors, .pt, .pth), or None (also "none") for random ones. A function's model comes with the weights
            that the function gives it unless this is a path.
        data_dir: folder that holds the known data sets, or that they are downloaded into.
        data_memory_gb: images that take more memory than this are read from their files again in every epoch; None
            for half of the machine's memory.
        validation: share of the training images that is held out for validation, by class; "folder" for the data's own
            val/ alone; None for val/ where there is one, else a tenth.
        group: regular expression for file names of a folder: files whose first group (or whole match) is the same,
            as those of one patient or one burst of a camera, are never on two sides of a cut.
    """

    kind: ClassVar[str] = "image classifier"
    implementation: ClassVar[str] = "tuner.worker.classification:Classification"
    uses_gpu: ClassVar[bool] = True
    strategies: ClassVar[tuple[str, ...]] = tuple(STRATEGIES)
    reproduced: ClassVar[tuple[str, ...] | None] = REPRODUCED

    data: str | DataFunction = "digits"
    model: str | ModelFunction = "resnet18"
    weights: str | Path | None = "imagenet"
    data_dir: str | Path = "data"
    data_memory_gb: float | None = None
    validation: float | str | None = None
    group: str | None = None

    @property
    def name(self) -> str:
        """Model and data, as in `resnet18 on fashion-mnist`."""
        return f"{self.model_name} on {self.source.name}"

    @property
    def model_name(self) -> str:
        """Torchvision's name, or the function's with brackets."""
        return self.model if isinstance(self.model, str) else f"{function_name(self.model)}()"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """What of the declaration is the user's code."""
        return tuple(part for part in (self.data, self.model) if not isinstance(part, str))

    @property
    def metrics(self) -> tuple[str, ...]:
        """What every epoch reports."""
        return tuple(METRICS)

    @property
    def directions(self) -> Mapping[str, Direction | None]:
        """Which of them are better high, low, or no aim at all."""
        return METRICS

    @property
    def known_hyperparameters(self) -> Mapping[str, Hyperparameter]:
        """The table; a function's model may have more."""
        return HYPERPARAMETERS

    @property
    def started_from(self) -> str:
        """ImageNet weights, those of a file, or random ones."""
        return "ImageNet weights" if self.uses_imagenet else str(self.weights_file or "random weights")

    @property
    def source(self) -> Source:
        """Where the images come from; StudyError for an unknown data set."""
        return find_source(self.data)

    @property
    def image_folder(self) -> Folder | None:
        """Where the images are files of their own."""
        source = self.source
        found = source.image_folder(self.data_folder) if isinstance(source, Cifar10) else source
        return found if isinstance(found, Folder) else None

    @property
    def model_facts(self) -> ModelFacts:
        """What is known of the model without torch; StudyError for an unknown one."""
        return find_model(self.model) if isinstance(self.model, str) else ModelFacts(self.model_name)

    @property
    def data_folder(self) -> Path:
        """`data_dir` as a path, `~` resolved."""
        return Path(self.data_dir).expanduser()

    @property
    def uses_imagenet(self) -> bool:
        """Whether training starts from torchvision's ImageNet weights."""
        return self.weights == "imagenet" and isinstance(self.model, str)

    @property
    def weights_file(self) -> Path | None:
        """The file that training starts from; None for random weights."""
        if self.weights in (None, "none") or (self.weights == "imagenet" and not self.uses_imagenet):
            return None
        return self.model_facts.weights_path if self.uses_imagenet else Path(self.weights).expanduser()

    def hyperparameters(self, config: dict[str, Any]) -> dict[str, Any]:
        """A value for every hyperparameter: the configuration's, of the right type, else the default.

        `epochs` stays None if the configuration leaves it to the budget, `image_size` where a function's images
        come in a size of their own. What only a function's model understands is handed on as it is.

        Raises:
            StudyError: an unknown hyperparameter, or a value that it doesn't take.
        """
        values: dict[str, Any] = {name: row.default for name, row in HYPERPARAMETERS.items()}
        for name, value in config.items():
            row = self._row(name)
            values[name] = value if row is None else row.coerce(value)
        values["image_size"] = values["image_size"] or self.default_image_size
        return values

    @property
    def default_image_size(self) -> int | None:
        """Edge in pixels of the images that the model gets where the space doesn't say; None for as they come."""
        preferred = self.source.default_size
        return self.model_facts.image_size(preferred) if preferred or self.model_facts.min_size > 1 else None

    def check(self, space: Space) -> None:
        """Raise StudyError for an unknown data set, model or hyperparameter, or for values that can't work."""
        _ = self.source, self.model_facts
        self._check_functions()
        self._check_settings()
        for name, value in space.constants.items():
            if row := self._row(name):
                self._check_value(row, value)
        for name, domain in space.dimensions.items():
            if row := self._row(name):
                self._check_domain(row, domain)

    def _check_settings(self) -> None:
        """Raise StudyError for paths that are none, and for memory that is no amount."""
        splitting.check_splitting(self.source, self.validation, self.group)
        memory = self.data_memory_gb
        if memory is not None and not (is_number(memory) and memory >= 0):
            raise StudyError(f"data_memory_gb must be a number >= 0, got {shown(memory)}; raise it or leave it out")
        if not _is_path(self.data_dir):
            raise StudyError(f"data_dir must be a folder's path, got {shown(self.data_dir)}; write data_dir='data'")
        if self.weights is not None and not _is_path(self.weights):
            raise StudyError(
                f"weights must be 'imagenet', None or the path of a saved state_dict, got {shown(self.weights)}; "
                "choose one"
            )

    def _row(self, name: str) -> Hyperparameter | None:
        """The hyperparameter called `name`; None for one that only a function's model knows.

        Raises:
            StudyError: there is none, or the name is another word for one.
        """
        if isinstance(self.model, str) or name in HYPERPARAMETERS or hyperparameters.means(name):
            return hyperparameters.find(name)
        return None

    def _check_functions(self) -> None:
        """Raise StudyError for functions that can't be called as they will be."""
        for part, function, arguments in (("data", self.data, ()), ("model", self.model, ({},))):
            if isinstance(function, str):
                continue
            if not callable(function):
                raise StudyError(f"{part} must be a name or a function, got {shown(function)}; write {part}=my_{part}")
            if not _takes(function, *arguments):
                name, takes = function_name(function), "the hyperparameters" if arguments else "no argument"
                raise StudyError(f"a {part} function takes {takes}, got {name}{inspect.signature(function)}; change it")

    def _check_domain(self, row: Hyperparameter, domain: Domain) -> None:
        if isinstance(domain, Choice | GridSearch):
            for value in domain.values():
                self._check_value(row, value)
        elif isinstance(domain, Float | Integer):
            _check_numeric(row, domain)
            self._check_value(row, domain.low)
            self._check_value(row, domain.high)
        elif isinstance(domain, Normal):
            raise StudyError(
                f"{row.name} must be {row.rule}, got {domain.describe()}, which has no bounds; use uniform"
            )

    def _check_value(self, row: Hyperparameter, value: object) -> None:
        row.check(value)
        if row.name == "image_size" and isinstance(value, int | float):
            self.model_facts.check_image_size(int(value))

    def check_files(self) -> None:
        """Raise DataError or WeightsError for files that are damaged, or missing where no download can help."""
        self.source.check(self.data_folder)
        splitting.check_files(self.source, self.image_folder, self.validation, self.data_folder)
        path = self.weights_file
        if path and not self.uses_imagenet and not path.is_file():
            raise WeightsError(
                f"weights must be imagenet, none or the path of a saved state_dict, got '{self.weights}', "
                f"and there is no file {path.absolute()}; correct it, or use --weights none for random weights"
            )

    def missing_downloads(self) -> list[str]:
        """What of data and weights isn't on this machine yet."""
        missing = self.source.missing(self.data_folder)
        path = self.weights_file
        if self.uses_imagenet and path and not path.is_file():
            missing = [*missing, f"ImageNet weights of {self.model} into {path}"]
        return missing

    def look(self) -> FolderHeaders | None:
        """See `Trial.look`."""
        return None if self.image_folder is None else folder_headers(self.image_folder)

    def fingerprint(self) -> str | None:
        """Of the data set's files; None for a function's data."""
        return self.source.fingerprint(self.data_folder)

    def identity(self) -> dict[str, str]:
        """Data, model, weights, and a cut that was asked for; a function by its name."""
        data = self.data if isinstance(self.data, str) else f"{function_name(self.data)}()"
        cut = {"validation": self.validation, "group": self.group}
        asked = {name: str(value) for name, value in cut.items() if value is not None}
        return {"data": data, "model": self.model_name, "weights": str(self.weights), **asked}

    def with_options(self, *, weights: str | None = None, data_dir: str | None = None) -> ImageClassifier:
        """The same with other weights ("none" for random ones) or another folder of data sets."""
        changed = self if data_dir is None else replace(self, data_dir=data_dir)
        return changed if weights is None else replace(changed, weights=None if weights.lower() == "none" else weights)

    def resolved(self, folder: Path | None = None) -> ImageClassifier:
        """The same trial with its paths made absolute, from `folder` or the working directory."""
        base = (folder or Path.cwd()).absolute()
        changed = replace(self, data_dir=str(base / self.data_folder))
        if isinstance(self.data, str) and self.data.startswith("folder:"):
            changed = replace(changed, data=f"folder:{base / Path(self.data.removeprefix('folder:')).expanduser()}")
        if self.weights not in (None, "none", "imagenet"):
            changed = replace(changed, weights=str(base / Path(str(self.weights)).expanduser()))
        return changed


def _is_path(value: object) -> bool:
    """Whether it can name a file."""
    return isinstance(value, str | Path) and bool(str(value).strip()) and "\0" not in str(value)


def _takes(function: Callable[..., Any], *arguments: object) -> bool:
    """Whether the function can be called so; a built-in without a signature is believed."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _check_numeric(row: Hyperparameter, domain: Float | Integer) -> None:
    """Raise StudyError if the domain yields numbers of another kind than the hyperparameter's."""
    if row.kind in ("bool", "categorical", "text"):
        raise StudyError(f"{row.name} must be {row.rule}, got {domain.describe()}; use choice([...])")
    if row.kind == "int" and isinstance(domain, Float) and not (domain.q and float(domain.q).is_integer()):
        fix = "lograndint" if domain.log else "randint"
        raise StudyError(f"{row.name} must be {row.rule}, got {domain.describe()}; use {fix} or choice")
