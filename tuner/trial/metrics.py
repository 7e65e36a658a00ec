"""The metrics of image classifiers: those of every epoch, and those that the user chooses. Imports no torch."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, ClassVar, cast

from tuner.errors import StudyError, did_you_mean, shown
from tuner.space.mode import Mode
from tuner.space.values import is_number

METRICS: dict[str, Mode | None] = {  # what every epoch reports, and whether it is better high or low
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
STANDARD_ERROR = "_se"  # suffix of the name of a metric's standard error
REPRODUCED = ("val_accuracy", "val_loss", "val_top5_accuracy", "val_f1", "train_loss", "learning_rate")
OTHER_WORDS = {  # for metrics that are always reported, or have another name here
    "accuracy": "val_accuracy",
    "top5_accuracy": "val_top5_accuracy",
    "f1": "val_f1",
    "macro_f1": "val_f1",
    "f1_macro": "val_f1",
    "loss": "val_loss",
    "cross_entropy": "val_loss",
    "recall": "balanced_accuracy",
    "macro_recall": "balanced_accuracy",
    "auc": "auroc",
    "roc_auc": "auroc",
    "kappa": "cohen_kappa",
    "ece": "calibration_error",
    "expected_calibration_error": "calibration_error",
    "mcc": "matthews_correlation",
    "map": "average_precision",
}


class ChosenMetric(ABC):
    """A metric in addition to those always reported: `val_NAME` of each epoch, `test_NAME` of the winner.

    Attributes:
        name: without the split's prefix
        direction: whether it is better high or low
        rises_when_resampled: whether its mean over bootstrap samples is clearly above what it estimates
    """

    name: str
    direction: Mode
    rises_when_resampled: bool = False
    computed_by: ClassVar[str]

    def compute(self, probabilities: Any, labels: Any, classes: Sequence[str]) -> Any:
        """The value as a tensor [], NaN if the images don't determine it.

        Args:
            probabilities: Tensor [N, C] float32, on any device
            labels: Tensor [N] int64, on the same device
            classes: names of the C classes

        Raises:
            StudyError: it is about a class that doesn't exist.
        """
        return resolve_name(self.computed_by)(self, probabilities, labels, classes)

    @abstractmethod
    def check_classes(self, classes: Sequence[str]) -> None:
        """Raise StudyError if it is about a class that isn't one of these."""


@dataclass(frozen=True)
class NamedMetric(ChosenMetric):
    """A metric of all classes, by the function of `torchmetrics.functional.classification` that computes it.

    `settings` are its arguments. `by_class`: it is computed for each class, and the values of classes that have images
    are averaged; for some metrics torchmetrics itself counts a class without images as 0.
    """

    name: str
    direction: Mode
    function: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_class: bool = False
    rises_when_resampled: bool = False
    computed_by: ClassVar[str] = "tuner.train.evaluation:of_all_classes"

    @property
    def declared(self) -> str:
        """The metric as a study file declares it."""
        return self.name

    def check_classes(self, classes: Sequence[str]) -> None:
        """Accepts all classes: the metric is about all of them."""


@dataclass(frozen=True)
class RecallAtPrecision(ChosenMetric):
    """The highest recall of one class, over thresholds of its probability at which its precision is at least this high.

    Attributes:
        precision: share of images of the class among those predicted as the class, above 0 and at most 1
        of: name of the class
    """

    precision: float
    of: str
    direction: ClassVar[Mode] = "max"  # type: ignore[misc]
    computed_by: ClassVar[str] = "tuner.train.evaluation:recall_at_precision"

    def __post_init__(self) -> None:
        """Raise StudyError for an impossible precision, or a class without a name."""
        if not is_number(self.precision) or not 0 < self.precision <= 1:
            raise StudyError(
                f"RecallAtPrecision needs a precision above 0 and at most 1, got {shown(self.precision)}; write 0.9"
            )
        if not isinstance(self.of, str) or not self.of.strip():
            raise StudyError(f"RecallAtPrecision needs the name of a class, got of={shown(self.of)}; write of='cat'")

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name, such as `recall_of_cat_at_precision_0.9`."""
        plain = re.sub(r"[^\w.-]+", "_", self.of)
        return f"recall_of_{plain}_at_precision_{self.precision:g}"

    def check_classes(self, classes: Sequence[str]) -> None:
        """Raise StudyError if there is no such class."""
        if self.of not in classes:
            raise StudyError(
                f"RecallAtPrecision needs a class of the data, got of={self.of!r}; {did_you_mean(self.of, classes)}"
            )


NAMED = {
    metric.name: metric
    for metric in (
        NamedMetric("balanced_accuracy", "max", "multiclass_accuracy", by_class=True),
        NamedMetric("precision", "max", "multiclass_precision", {"average": "macro"}),
        NamedMetric("weighted_f1", "max", "multiclass_f1_score", {"average": "weighted"}),
        NamedMetric("auroc", "max", "multiclass_auroc", by_class=True),
        NamedMetric("average_precision", "max", "multiclass_average_precision", by_class=True),
        NamedMetric("cohen_kappa", "max", "multiclass_cohen_kappa"),
        NamedMetric("matthews_correlation", "max", "multiclass_matthews_corrcoef"),
        NamedMetric(
            "calibration_error", "min", "multiclass_calibration_error", {"n_bins": 15}, rises_when_resampled=True
        ),
    )
}


def chosen_metrics(given: object) -> tuple[ChosenMetric, ...]:
    """The metrics of `ImageClassifier(metrics=...)`, each once; StudyError for an unknown name."""
    if type(given) not in (list, tuple):
        raise StudyError(f"metrics needs a list of names, got {shown(given)}; write metrics=['balanced_accuracy']")
    found = {metric.name: metric for metric in map(_chosen, cast("Sequence[object]", given))}
    return tuple(found.values())


def check_classes(chosen: Iterable[ChosenMetric], classes: Sequence[str]) -> None:
    """Raise StudyError if one is about a class that isn't one of these."""
    for metric in chosen:
        metric.check_classes(classes)


def directions(chosen: Iterable[ChosenMetric], *, with_errors: bool = False) -> dict[str, Mode | None]:
    """Every metric that is reported with these chosen ones, and whether it is better high or low.

    `with_errors`: with the standard error of each metric of the validation images, as `val_accuracy_se`.
    """
    found = METRICS | {f"val_{metric.name}": metric.direction for metric in chosen}
    validated = [name for name in found if name.startswith("val_")] if with_errors else []
    return found | dict.fromkeys([f"{name}{STANDARD_ERROR}" for name in validated], None)


def how_to_report(metric: str) -> str | None:
    """The end of a message about a metric that is known, but wasn't chosen; None if it isn't known."""
    name = _plain(metric)
    name = OTHER_WORDS.get(name, name)
    if name not in NAMED:
        return None
    return f"add metrics=['{name}'] to ImageClassifier, and write metric='val_{name}'"


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower()).removeprefix("val_").removeprefix("test_")


def _chosen(one: object) -> ChosenMetric:
    if isinstance(one, ChosenMetric):
        return one
    if not isinstance(one, str):
        raise StudyError(f"metrics needs names or RecallAtPrecision(...), got {shown(one)}; {_names()}")
    name = _plain(one)
    if name in NAMED:
        return NAMED[name]
    meant = OTHER_WORDS.get(name)
    if meant in METRICS:
        raise StudyError(
            f"metrics has what isn't always reported, got {shown(one)}; leave it out, it is there as {meant!r}"
        )
    fix = f"did you mean {meant!r}?" if meant else did_you_mean(name, NAMED)
    raise StudyError(f"metrics needs names of metrics, got {shown(one)}; {fix}")


def _names() -> str:
    return f"there are {', '.join(NAMED)}"
