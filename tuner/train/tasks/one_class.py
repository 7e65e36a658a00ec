"""Metrics of one class, for tasks that have classes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tuner.trial.metrics import RecallAtPrecision


def recall_at_precision(
    metric: RecallAtPrecision, probabilities: Tensor, labels: Tensor, classes: Sequence[str]
) -> Tensor:
    """The highest recall of the class at the precision; 0 if no threshold reaches it, NaN without its images."""
    from torchmetrics.functional.classification import binary_recall_at_fixed_precision

    metric.check_classes(classes)
    index = list(classes).index(metric.of)
    wanted = labels[:, index].long() if labels.ndim == 2 else (labels == index).long()
    if not bool(wanted.any()):
        return probabilities.new_tensor(float("nan"))
    recall: Tensor = binary_recall_at_fixed_precision(
        probabilities[:, index], wanted, metric.precision, validate_args=False
    )[0]
    return recall
