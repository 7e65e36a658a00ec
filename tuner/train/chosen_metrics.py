"""Metrics of the user's choice, computed by torchmetrics on the device of the predictions.

Only this module imports torchmetrics, and only in functions, because it also imports scipy: about a second.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from tuner.trial.metrics import ChosenMetric, NamedMetric, RecallAtPrecision


def values_of(chosen: Iterable[ChosenMetric], logits: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    """The values of M metrics for logits [N, C] and labels [N]: [M] float32 on the logits' device."""
    labels = labels.to(logits.device)
    with torch.inference_mode(), _without_warnings():
        probabilities = logits.float().softmax(1)
        found = [metric.compute(probabilities, labels, classes).float().reshape(()) for metric in chosen]
    return torch.stack(found) if found else logits.new_empty(0)


def of_all_classes(metric: NamedMetric, probabilities: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    """One number for all classes; see `NamedMetric`."""
    from torchmetrics.functional import classification

    function = getattr(classification, metric.function)
    count = len(classes)
    if not metric.by_class:
        value: Tensor = function(probabilities, labels, num_classes=count, validate_args=False, **metric.settings)
        return value
    each: Tensor = function(
        probabilities, labels, num_classes=count, average="none", validate_args=False, **metric.settings
    )
    images = torch.bincount(labels, minlength=count)
    return each[(images > 0) & (images < len(labels))].mean()  # NaN if there is only one class


def recall_at_precision(
    metric: RecallAtPrecision, probabilities: Tensor, labels: Tensor, classes: Sequence[str]
) -> Tensor:
    """The highest recall of the class at the precision; 0 if no threshold reaches it, NaN without its images."""
    from torchmetrics.functional.classification import binary_recall_at_fixed_precision

    metric.check_classes(classes)
    index = list(classes).index(metric.of)
    wanted = (labels == index).long()
    if not bool(wanted.any()):
        return probabilities.new_tensor(float("nan"))
    recall: Tensor = binary_recall_at_fixed_precision(
        probabilities[:, index], wanted, metric.precision, validate_args=False
    )[0]
    return recall


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Without warnings of classes without images, which are handled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
