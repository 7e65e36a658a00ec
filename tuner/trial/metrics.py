"""Metrics of image classifiers: those of every epoch, and those that the user chooses. Imports no torch."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, ClassVar

from tuner.errors import StudyError, did_you_mean, shown
from tuner.space.mode import Mode
from tuner.space.values import is_number

EVERY_EPOCH: dict[str, Mode | None] = {  # what every epoch reports beside the task's metrics: the aim, or None
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
REPRODUCED = ("train_loss", "learning_rate")  # beside the metrics of the images


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

    def compute(self, answers: Any, labels: Any, classes: Sequence[str]) -> Any:
        """The value as a tensor [], NaN if the images don't determine it.

        Args:
            answers: Tensor [N, C] float32, on any device: probabilities, or numbers
            labels: Tensor [N] int64, or [N, C] of several labels or numbers, on the same device
            classes: names of the C outputs

        Raises:
            StudyError: it is about a class that doesn't exist.
        """
        return resolve_name(self.computed_by)(self, answers, labels, classes)

    @abstractmethod
    def check_classes(self, classes: Sequence[str]) -> None:
        """Raise StudyError if it is about a class that isn't one of these."""


@dataclass(frozen=True)
class NamedMetric(ChosenMetric):
    """A metric of all classes, by the function of `torchmetrics.functional` that computes it.

    `settings` are its arguments. `by_class`: it is computed for each class, and the values of classes that have images
    are averaged; for some metrics torchmetrics itself counts a class without images as 0.
    """

    name: str
    direction: Mode
    function: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_class: bool = False
    rises_when_resampled: bool = False
    computed_by: ClassVar[str] = "tuner.train.tasks.one_label:of_all_classes"

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
    computed_by: ClassVar[str] = "tuner.train.tasks.one_class:recall_at_precision"

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


def by_name(*metrics: ChosenMetric) -> dict[str, ChosenMetric]:
    """The metrics by their names."""
    return {metric.name: metric for metric in metrics}


def check_classes(chosen: Iterable[ChosenMetric], classes: Sequence[str]) -> None:
    """Raise StudyError if one is about a class that isn't one of these."""
    for metric in chosen:
        metric.check_classes(classes)
