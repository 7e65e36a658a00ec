"""The built-in trial: fine-tuning an image classifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, cast

from tuner.errors import StudyError, WeightsError
from tuner.space import Space
from tuner.space.mode import Mode
from tuner.trial import splitting
from tuner.trial.base import Trial
from tuner.trial.bringing import ReadsFiles
from tuner.trial.checking import (
    check_functions,
    check_installed,
    check_needs,
    check_settings,
    check_space,
    check_task,
    notices,
)
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.hyperparameters import HYPERPARAMETERS, OF_A_LIBRARYS_MODEL
from tuner.trial.metrics import EVERY_EPOCH, REPRODUCED, ChosenMetric, check_classes
from tuner.trial.model_and_data import DEFAULT_MODEL, DataFunction, ModelFunction, Weights, of_each
from tuner.trial.models import DEFAULTS, IMAGENET, looks_published
from tuner.trial.only_the_head import IGNORED, LBFGS
from tuner.trial.sources import function_name
from tuner.trial.splitting import Folds, Joined, Validation
from tuner.trial.stored import Copies
from tuner.trial.strategies import STRATEGIES
from tuner.trial.table import Table
from tuner.trial.tasks import ONE_LABEL, TASKS
from tuner.trial.tasks.one_label import TOP, TOP5


@dataclass(frozen=True)
class ImageClassifier(ReadsFiles, Trial):
    """Fine-tune an image classification model on a data set.

    Attributes:
        data: a data set by name, such as "digits" (scikit-learn's), or "folder:PATH" with a class per subfolder, also
            as "folder:s3://bucket/photos", which each node copies into its cache once; or a `Table`, also as
            "table:labels.csv" or "table:s3://bucket/photos/labels.csv", with a row for each image; or a function
            without arguments that returns training, validation and test, each as a pair of tensors (images [N, C, H, W]
            uint8 or float, labels [N] int), or as a torch `Dataset` of (image, label).
        model: name of a classification model, such as any of torchvision's, "timm:NAME" or "hf:OWNER/NAME"; or a
            function that makes an `nn.Module` from the trial's hyperparameters; the space may then have further names.
            `model` in the space has priority.
        weights: "pretrained" or "imagenet" (the default ones of each model, downloaded once), a name of the library's
            such as "IMAGENET1K_V2", the path or s3://… of a saved `state_dict` (.safetensors, .pt, .pth), or None (also
            "none") for random ones; or a dict of these by the names of the models. A function's model comes with the
            weights that the function gives it unless this is a path.
        data_dir: folder that holds the known data sets, or that they are downloaded into.
        data_memory_gb: images that take more memory than this are read from their files again in every epoch; None
            for half of the machine's memory.
        validation: share of the training images that is held out for validation, by class; "folder" for the data's own
            val/ alone; `Folds(5)` for cross-validation; None for val/ where there is one, else a tenth.
        group: regular expression for file names of a folder: files whose first group (or whole match) is the same, as
            those of one patient or one burst of a camera, are never in two splits.
        metrics: names of metrics in addition to those that are always reported, such as "balanced_accuracy", "auroc",
            "cohen_kappa" or "calibration_error", and `RecallAtPrecision(0.9, of="cat")`; reported as `val_NAME`.
        task: what labels are: "one" class for each image, "several" labels, or a "number"; None to find it in a table,
            and one class for other data. A function returns labels [N, L] of 0 and 1 for several, [N] for numbers.
        candidates: the models that the space has, set by the study.
        copies: versions of what is copied from object stores, by URI, and commits of repositories on the Hugging Face
            hub, set when a search starts.

    Long because it has everything about such trials that needs no torch; its checks are in other modules.
    """

    kind: ClassVar[str] = "image classifier"
    implementation: ClassVar[str] = "tuner.worker.classification:Classification"
    uses_gpu: ClassVar[bool] = True

    data: str | Table | DataFunction = "digits"
    model: str | ModelFunction = DEFAULT_MODEL
    weights: Weights | dict[str, Weights] = "imagenet"
    data_dir: str | Path = "data"
    data_memory_gb: float | None = None
    validation: Validation = None
    group: str | None = None
    metrics: Sequence[str | ChosenMetric] = ()
    task: str | None = None
    candidates: tuple[str, ...] = field(default=(), repr=False, compare=False)
    copies: Copies = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Also accept tables, torchvision's enums, and their names with the class in front; look up metrics by name."""
        if isinstance(self.data, Table):
            object.__setattr__(self, "data", str(self.data))
        given = dict(self.weights) if isinstance(self.weights, Mapping) else self.weights
        object.__setattr__(self, "weights", of_each(given, _weights_by_name))
        check_task(self.task)
        object.__setattr__(self, "metrics", self.label_task.chosen_metrics(self.metrics) if self.metrics else ())
        object.__setattr__(self, "copies", tuple((uri, version) for uri, version in self.copies))  # JSON has lists

    @property
    def name(self) -> str:
        """Model and data, as in `resnet18 on fashion-mnist`."""
        several = len(self.candidates) > 1
        return f"{f'{len(self.candidates)} models' if several else self.each[0].model_name} on {self.source.name}"

    @property
    def folds(self) -> int:
        """How many networks a trial cross-validates; 0 if it trains only one."""
        folds = self.validation
        return folds.count if isinstance(folds, Folds) and folds.part is None else 0

    def fold(self, part: int) -> ImageClassifier:
        """The trial that trains one network of a cross-validation, and is validated on this part."""
        return replace(self, validation=cast(Folds, self.validation).only(part))

    @property
    def refit_share(self) -> float:
        """See `Trial.refit_share`: one network instead of those of a cross-validation, and all images."""
        return splitting.refit_share(self.validation)

    def refitted(self) -> ImageClassifier:
        """See `Trial.refitted`."""
        return replace(self, validation=Joined(cast(Any, self.validation)))

    @property
    def measures_networks(self) -> bool:
        """See `Trial.measures_networks`: for models by name, whose images tuner knows."""
        return isinstance(self.model, str)

    @property
    def has_soups(self) -> bool:
        """See `Trial.has_soups`."""
        return any(each.starts_from_weights for each in self.each)

    @property
    def strategies(self) -> tuple[str, ...]:
        """All strategies, but a pipeline for classes only; none for a cross-validation, whose networks are many."""
        of_task = [name for name in STRATEGIES if name != "pipeline" or self.label_task is ONE_LABEL]
        return () if self.folds else tuple(of_task)

    @property
    def without_strategies(self) -> str:
        """See `Trial.without_strategies`."""
        if not self.folds:
            return f"whose images have {self.label_task.described} each; use {' or '.join(self.strategies)}"
        return f"whose validation={self.validation} trains several networks on one device; leave strategy out"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The parts of the declaration that are the user's code."""
        return tuple(part for part in (self.data, self.model) if callable(part))

    @property
    def reports(self) -> tuple[str, ...]:
        """What every epoch reports."""
        return tuple(self.directions)

    @property
    def reproduced(self) -> tuple[str, ...]:
        """See `Trial.reproduced`."""
        return tuple(name for name in self.directions if name in REPRODUCED or name not in EVERY_EPOCH)

    def instead_of(self, metric: str) -> str:
        """See `Trial.instead_of`."""
        short = f"val_{metric}"
        if short in self.directions:
            return f"did you mean {short!r}?"
        other = next((task for task in TASKS.values() if metric.removeprefix("val_") in task.metrics), None)
        of_other = other and f"it is of task={other.name!r}, and images have {self.label_task.described} each"
        return self.label_task.how_to_report(metric) or of_other or super().instead_of(metric)

    @property
    def usual_metric(self) -> str:
        """See `Trial.usual_metric`: that of the task."""
        return self.label_task.metric

    @property
    def chosen_metrics(self) -> tuple[ChosenMetric, ...]:
        """The objects that `metrics` names."""
        return cast(tuple[ChosenMetric, ...], self.metrics)

    @property
    def directions(self) -> Mapping[str, Mode | None]:
        """Which of the metrics are better high or low, or aren't an aim at all."""
        return self.label_task.directions(self.chosen_metrics, with_errors=bool(self.folds))

    @property
    def known_hyperparameters(self) -> Mapping[str, Hyperparameter]:
        """The table; a function's model may have more."""
        return HYPERPARAMETERS

    @property
    def portfolio(self) -> tuple[str, ...]:
        """See `Trial.portfolio`; a function's model may come with any weights."""
        random = isinstance(self.model, str) and not any(each.weights_file for each in self.each)
        return ("random",) if random else super().portfolio

    @property
    def started_from(self) -> str:
        """ImageNet weights, those of a repository or of a file, or random ones; several models may have several."""
        return " or ".join(dict.fromkeys(each._starts_from for each in self.each))

    @property
    def _starts_from(self) -> str:
        named = self.named_weights
        if named is None:
            return str(self.stored_weights or self.weights_file or "random weights")
        if named.repository:
            return f"weights {named.name} of {named.repository}"
        return "ImageNet weights" if self.own_weights in DEFAULTS else f"ImageNet weights {self.own_weights}"

    @property
    def _usual_model(self) -> Any:
        """The model of a configuration that leaves it out; if a dict has no weights of it, the dict's first one."""
        unknown = isinstance(self.weights, dict) and self.model not in self.weights
        return next(iter(cast(Any, self.weights)), self.model) if unknown else self.model

    def hyperparameters(self, config: dict[str, Any]) -> dict[str, Any]:
        """A value for every hyperparameter: the configuration's, of the right type, else the default.

        `epochs` stays None if the configuration leaves it to the budget, `image_size` if a function's images come in a
        size of their own. Names that only a function's model knows are passed on unchanged. What lbfgs ignores is as if
        it were left out.

        Raises:
            StudyError: an unknown hyperparameter, or a value that it doesn't take.
        """
        values: dict[str, Any] = {name: row.default for name, row in HYPERPARAMETERS.items()}
        for name, value in config.items():
            row = self.row(name)
            values[name] = value if row is None else row.coerce(value)
        if isinstance(self.model, str):
            values["model"] = values["model"] or self._usual_model
        else:
            values = {
                name: value for name, value in values.items() if name in config or name not in OF_A_LIBRARYS_MODEL
            }
        if values["optimizer"] == LBFGS:
            values |= {name: HYPERPARAMETERS[name].default for name in IGNORED}
        values["image_size"] = values["image_size"] or self.of(values).default_image_size
        return values

    def check(self, space: Space) -> None:
        """Raise StudyError for an unknown data set, model or hyperparameter, or for values that can't work."""
        _ = self.source
        check_functions(self)
        check_settings(self)
        check_space(self, space)
        check_needs(self, space, self.hyperparameters)

    def notices(self, space: Space, max_epochs: int) -> list[str]:
        """See `Trial.notices`."""
        return notices(self.within(space), space, max_epochs)

    def check_installed(self, space: Space) -> None:
        """See `Trial.check_installed`."""
        check_installed(space)

    def check_files(self) -> None:
        """Raise DataError or WeightsError for files that are damaged, or missing and not downloadable.

        StudyError for a metric of a class that the data doesn't have, or a model whose library isn't installed.
        """
        for each in self.each:
            each.model_facts.check_installed()
        self.source.check(self.data_folder)
        if self.metrics and (classes := self.source.class_names()):
            check_classes(self.chosen_metrics, classes)
        splitting.check_files(self.source, self.image_files, self.validation, self.group, self.data_folder)
        for each in self.each:
            path = each.weights_file
            if path and not each.named_weights and not each.stored_weights and not path.is_file():
                raise WeightsError(
                    f"weights must be pretrained, none or the path of a saved state_dict, got '{each.own_weights}', "
                    f"and there is no file {path.absolute()}; correct it, or use --weights none for random weights"
                )

    def check_metric(self, metric: str) -> None:
        """Raise StudyError for the top-5 accuracy of so few classes that it isn't reported."""
        classes = self.source.count_classes() if metric == f"val_{TOP5}" else None
        if classes is not None and classes <= TOP:
            raise StudyError(
                f"metric {metric!r} needs more than {TOP} classes, got {classes}, of which it would always be 1; use "
                "val_accuracy"
            )

    def identity(self) -> dict[str, str]:
        """Data, model, weights, and a declared split; a function by its name."""
        data = f"{function_name(self.data)}()" if callable(self.data) else str(self.data)
        each = sorted(self.weights.items()) if isinstance(self.weights, dict) else ()
        weights = ", ".join(f"{model}: {named}" for model, named in each) or str(self.weights)
        told = {"data": data, "model": ", ".join(self.candidates) or self.model_name, "weights": weights}
        told |= {"preprocessing": "of the weights"} if any(each.published for each in self.each) else {}
        told |= {} if self.label_task is ONE_LABEL else {"task": self.label_task.name}
        cut = {"validation": self.validation, "group": self.group}
        return told | {name: str(value) for name, value in cut.items() if value is not None}

    def with_options(self, *, weights: str | None = None, data_dir: str | None = None) -> ImageClassifier:
        """The same trial with other weights ("none" for random ones) or another folder of data sets."""
        changed = self if data_dir is None else replace(self, data_dir=data_dir)
        return changed if weights is None else replace(changed, weights=None if weights.lower() == "none" else weights)


def _weights_by_name(weights: Any) -> Any:
    """Published weights by the library's name of them, without the class in front; others as they are."""
    name = weights.name if isinstance(weights, Enum) else weights
    published = isinstance(name, str) and looks_published(name)
    return name.rpartition(".")[2].replace("DEFAULT", IMAGENET) if published else name
