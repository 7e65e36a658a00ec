"""The trial that tuner brings along: fine-tuning an image classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import StudyError, WeightsError
from tuner.space import Choice, Domain, Float, GridSearch, Integer, Normal, Space
from tuner.trial import hyperparameters
from tuner.trial.base import Trial
from tuner.trial.hyperparameters import HYPERPARAMETERS, Hyperparameter
from tuner.trial.models import ModelFacts, find_model
from tuner.trial.sources import Source, find_source

METRICS = ("val_accuracy", "val_loss", "train_loss", "learning_rate", "seconds", "images_per_second")


@dataclass(frozen=True)
class ImageClassifier(Trial):
    """Fine-tune a torchvision classification model on a data set.

    Attributes:
        data: "digits" (scikit-learn's), "fashion-mnist", "cifar10", or "folder:PATH" with a class per subfolder.
        model: name of any torchvision classification model.
        weights: "imagenet" (torchvision's default ones, downloaded once), the path of a saved `state_dict`
            (.safetensors, .pt, .pth), or None (also "none") for random ones.
        data_dir: folder that holds the known data sets, or that they are downloaded into.
    """

    data: str = "digits"
    model: str = "resnet18"
    weights: str | Path | None = "imagenet"
    data_dir: str | Path = "data"

    @property
    def name(self) -> str:
        """Model and data, as in `resnet18 on fashion-mnist`."""
        return f"{self.model} on {self.data}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What every epoch reports."""
        return METRICS

    @property
    def source(self) -> Source:
        """Where the images come from; StudyError for an unknown data set."""
        return find_source(self.data)

    @property
    def model_facts(self) -> ModelFacts:
        """What is known of the model without torch; StudyError for an unknown one."""
        return find_model(self.model)

    @property
    def data_folder(self) -> Path:
        """`data_dir` as a path, `~` resolved."""
        return Path(self.data_dir).expanduser()

    @property
    def uses_imagenet(self) -> bool:
        """Whether training starts from torchvision's ImageNet weights."""
        return self.weights == "imagenet"

    @property
    def weights_file(self) -> Path | None:
        """The file that training starts from; None for random weights."""
        if self.weights is None or self.weights == "none":
            return None
        return self.model_facts.weights_path if self.uses_imagenet else Path(self.weights).expanduser()

    def hyperparameters(self, config: dict[str, Any]) -> dict[str, Any]:
        """A value for every hyperparameter: the configuration's, of the right type, else the default.

        `epochs` stays None where the configuration leaves it to the budget.

        Raises:
            StudyError: an unknown hyperparameter, or a value that it doesn't take.
        """
        values: dict[str, Any] = {name: row.default for name, row in HYPERPARAMETERS.items()}
        values |= {name: hyperparameters.find(name).coerce(value) for name, value in config.items()}
        values["image_size"] = values["image_size"] or self.default_image_size
        return values

    @property
    def default_image_size(self) -> int:
        """Edge in pixels of the images that the model gets where the space doesn't say: by data and model."""
        return self.model_facts.image_size(self.source.default_size)

    def check(self, space: Space) -> None:
        """Raise StudyError for an unknown data set, model or hyperparameter, or for values that can't work."""
        _ = self.source, self.model_facts
        for name, value in space.constants.items():
            self._check_value(hyperparameters.find(name), value)
        for name, domain in space.dimensions.items():
            self._check_domain(hyperparameters.find(name), domain)

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

    def fingerprint(self) -> str:
        """Of the data set's files."""
        return self.source.fingerprint(self.data_folder)

    def resolved(self, folder: Path | None = None) -> ImageClassifier:
        """The same trial with its paths made absolute, from `folder` or the working directory."""
        base = (folder or Path.cwd()).absolute()
        changed = replace(self, data_dir=str(base / self.data_folder))
        if self.data.startswith("folder:"):
            changed = replace(changed, data=f"folder:{base / Path(self.data.removeprefix('folder:')).expanduser()}")
        if self.weights not in (None, "none", "imagenet"):
            changed = replace(changed, weights=str(base / Path(str(self.weights)).expanduser()))
        return changed


def _check_numeric(row: Hyperparameter, domain: Float | Integer) -> None:
    """Raise StudyError if the domain yields numbers of another kind than the hyperparameter's."""
    if row.kind == "categorical":
        raise StudyError(f"{row.name} must be {row.rule}, got {domain.describe()}; use choice([...])")
    if row.kind == "int" and isinstance(domain, Float) and not (domain.q and float(domain.q).is_integer()):
        fix = "lograndint" if domain.log else "randint"
        raise StudyError(f"{row.name} must be {row.rule}, got {domain.describe()}; use {fix} or choice")
