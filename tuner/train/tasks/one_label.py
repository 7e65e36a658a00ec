"""One class for each image: cross-entropy, accuracy, F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tuner.train.tasks.base import Targets
from tuner.train.tasks.objective import TINY, Objective, at_least_float32
from tuner.trial.metrics import NamedMetric
from tuner.trial.tasks import ONE_LABEL, Label
from tuner.trial.tasks.one_label import TOP, TOP5


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross-entropy of classes.

    Attributes:
        label_smoothing: share of the target spread over all classes
        class_weights: [classes] float32; None for equal ones
    """

    label_smoothing: float = 0.0
    class_weights: Tensor | None = None

    def total(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Objective.total`; targets are classes [B] or probabilities [B, classes], times their image's weight."""
        smoothing = self.label_smoothing
        if self.weighted and smoothing:  # torch would spread a share of 1 instead of one of the weight
            targets = torch.lerp(targets, targets.mean(1, keepdim=True), smoothing)
            smoothing = 0.0
        return F.cross_entropy(
            at_least_float32(outputs), targets, self.class_weights, label_smoothing=smoothing, reduction="sum"
        )

    def weight(self, targets: Tensor) -> Tensor | int:
        """See `Objective.weight`; as in `F.cross_entropy`."""
        if self.class_weights is None or targets.ndim == 2:
            return len(targets)
        return self.class_weights[targets].sum()


@dataclass(frozen=True)
class ClassTargets(Targets):
    """Classes; labels are [N] int64, outputs logits."""

    task: ClassVar = ONE_LABEL

    @staticmethod
    def encoded(labels: Sequence[Label], names: Sequence[str]) -> np.ndarray:
        """See `Targets.encoded`."""
        numbers = {name: number for number, name in enumerate(names)}
        return np.array([numbers[str(label)] for label in labels], dtype=np.int64)

    @staticmethod
    def given(labels: Any, part: str) -> Tensor:
        """Never asked: see `tuner.train.data.given_labels`, which also takes names."""
        raise NotImplementedError

    def objective(self, chosen: Mapping[str, Any], labels: Tensor, *, weighted: bool) -> Objective:
        """Cross-entropy with smoothed labels, by weighted classes."""
        balanced = chosen["class_weights"] == "balanced"
        weights = balanced_weights(labels, len(self.names)) if balanced else None
        return CrossEntropy(chosen["label_smoothing"], weights, weighted=weighted)

    def own_metrics(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Loss, accuracy, macro F1, and the top-5 accuracy of more than five classes: of fewer it is always 1.

        Of outputs [M, N, classes] of several networks they are tensors [M].

        The four formulas are those of torchmetrics, whose import also imports scipy: most of a second, in every
        worker's first epoch.
        """
        classes = outputs.shape[-1]
        answers = outputs.argmax(-1)
        wanted = labels.expand_as(answers)
        losses = F.cross_entropy(outputs.flatten(0, -2), wanted.flatten(), reduction="none")
        found = {"loss": losses.view_as(answers).mean(-1), "accuracy": (answers == labels).float().mean(-1)}
        if classes > TOP:
            likeliest = outputs.topk(TOP, dim=-1).indices
            found[TOP5] = (likeliest == labels[:, None]).any(-1).float().mean(-1)
        return found | {"f1": _macro_f1(answers, labels, classes)}

    def answers(self, outputs: Tensor) -> Tensor:
        """The classes' probabilities."""
        return outputs.softmax(1)

    def goodness(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """1 for a right answer, 0 for a wrong one."""
        return (outputs.argmax(1) == labels).double()

    @staticmethod
    def together(outputs: Tensor, shares: Tensor) -> Tensor:
        """Logits whose softmax is the mean of the networks'."""
        return (outputs.log_softmax(2) + shares.log()[:, None, None]).logsumexp(0)

    def merits(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The right class's probability, J = 1."""
        return outputs.double().softmax(2).gather(2, labels.expand(len(outputs), -1)[..., None])

    @staticmethod
    def losses(merits: Tensor) -> Tensor:
        """See `Targets.losses`."""
        return -merits.clamp(min=TINY).log()[..., 0]


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """Weights [classes] float32 inverse to the classes' counts, 1 on average over images; absent classes weigh 0."""
    counts = torch.bincount(labels, minlength=classes).float()
    weights = len(labels) / (counts * (counts > 0).sum())
    return torch.where(counts > 0, weights, torch.zeros_like(weights))


def _macro_f1(answers: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Mean F1 of the classes that occur among predictions [..., N] or labels [N], both int64."""
    right = torch.where(answers == labels, labels, classes)  # wrong predictions are counted as a class of their own
    hits = _counts(right, classes + 1)[..., :classes]
    asked, answered = _counts(labels, classes), _counts(answers, classes)
    return (2 * hits / (asked + answered)).nanmean(-1)  # a class that doesn't occur is 0 / 0


def _counts(numbers: Tensor, classes: int) -> Tensor:
    """How often each class occurs: [..., classes] from [..., N] int64."""
    rows = numbers.reshape(-1, numbers.shape[-1])
    of_rows = torch.arange(len(rows), device=rows.device)[:, None] * classes
    counts = torch.bincount((rows + of_rows).flatten(), minlength=len(rows) * classes)
    return counts.view(*numbers.shape[:-1], classes)


def of_all_classes(metric: NamedMetric, probabilities: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    """One number for all classes; see `NamedMetric`."""
    # Only imported where it is used, as in other tasks, because it also imports scipy: about a second.
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
