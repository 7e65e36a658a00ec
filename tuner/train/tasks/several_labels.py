"""Several labels for each image: binary cross-entropy, mean average precision, F1 at each label's threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tuner.errors import DataError
from tuner.train.tasks.base import Targets
from tuner.train.tasks.objective import TINY, Objective, at_least_float32
from tuner.trial.tasks import SEVERAL_LABELS, Label
from tuner.trial.tasks.several_labels import OfLabels

HALF = 0.5


@dataclass(frozen=True)
class BinaryCrossEntropy(Objective):
    """The mean over labels of their binary cross-entropy.

    Attributes:
        label_smoothing: how far targets are moved from 0 and 1 to one half
        positive_weights: [L] of images that have a label, float32; None for equal ones
    """

    label_smoothing: float = 0.0
    positive_weights: Tensor | None = None

    def total(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Objective.total`; targets are [B, L], with a last column of their images' weights."""
        wanted = targets[:, : outputs.shape[1]] * (1 - self.label_smoothing) + HALF * self.label_smoothing
        each = F.binary_cross_entropy_with_logits(
            at_least_float32(outputs), wanted, pos_weight=self.positive_weights, reduction="none"
        ).mean(1)
        return (each * targets[:, -1]).sum() if self.weighted else each.sum()


@dataclass(frozen=True)
class LabelTargets(Targets):
    """Labels that an image has or hasn't, [N, L] float32 of 0 and 1; outputs are logits.

    Attributes:
        thresholds: probabilities from which on a label is answered, [L]; empty for one half each
    """

    thresholds: tuple[float, ...] = ()
    task: ClassVar = SEVERAL_LABELS

    @staticmethod
    def encoded(labels: Sequence[Label], names: Sequence[str]) -> np.ndarray:
        """See `Targets.encoded`."""
        numbers = {name: number for number, name in enumerate(names)}
        found = np.zeros((len(labels), len(names)), np.float32)
        several: Any = labels
        for row, each in enumerate(several):
            found[row, [numbers[name] for name in each]] = 1
        return found

    @staticmethod
    def given(labels: Any, part: str) -> Tensor:
        """See `Targets.given`: 0 and 1, or booleans, [N, L]."""
        found = torch.as_tensor(np.asarray(labels)).float()
        if found.ndim != 2 or not bool(((found == 0) | (found == 1)).all()):
            raise DataError(
                f"several labels must be 0 or 1, [N, L], got {list(found.shape)} for {part}; make a column for each"
            )
        return found

    def facts(self) -> dict[str, Any]:
        """See `Targets.facts`."""
        return {"thresholds": dict(zip(self.names, self.thresholds, strict=True))} if self.thresholds else {}

    def with_facts(self, facts: Mapping[str, Any]) -> Self:
        """See `Targets.with_facts`."""
        given = facts.get("thresholds")
        return self if given is None else replace(self, thresholds=tuple(float(given[name]) for name in self.names))

    def objective(self, chosen: Mapping[str, Any], labels: Tensor, *, weighted: bool) -> Objective:
        """Binary cross-entropy; with balanced class weights images with a label count as much as those without."""
        weights = None
        if chosen["class_weights"] == "balanced":
            having = labels.sum(0)
            weights = (len(labels) - having) / having.clamp(min=1)  # a function's data may lack a label
        return BinaryCrossEntropy(chosen["label_smoothing"], weights, weighted=weighted)

    def said(self, outputs: Tensor) -> Tensor:
        """Which labels are answered, [N, L] bool."""
        limits = torch.tensor(self.thresholds or [HALF] * len(self.names), device=outputs.device)
        return outputs.float().sigmoid() >= limits

    def own_metrics(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Mean average precision, loss, macro and micro F1, and the share of images whose labels are all right."""
        said, has = self.said(outputs), labels > HALF
        hits, count = (said & has).sum(0), said.sum(0) + has.sum(0)
        return {
            "map": average_precision(outputs, labels).nanmean(),
            "loss": F.binary_cross_entropy_with_logits(outputs.float(), labels),
            "f1": (2 * hits / count).nanmean(),  # a label that neither occurs nor is answered is 0 / 0
            "f1_micro": 2 * hits.sum() / count.sum().clamp(min=1),
            "subset_accuracy": (said == has).all(1).float().mean(),
        }

    def answers(self, outputs: Tensor) -> Tensor:
        """The labels' probabilities."""
        return outputs.sigmoid()

    def goodness(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """1 for an image whose labels are all right, otherwise 0."""
        return (self.said(outputs) == (labels > HALF)).all(1).double()

    @staticmethod
    def together(outputs: Tensor, shares: Tensor) -> Tensor:
        """Logits of the networks' mean probabilities."""
        weights = shares.log()[:, None, None]
        return (F.logsigmoid(outputs) + weights).logsumexp(0) - (F.logsigmoid(-outputs) + weights).logsumexp(0)

    def merits(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The probabilities that labels are as they are, J = L."""
        return (outputs.double() * (2 * labels - 1)).sigmoid()

    @staticmethod
    def losses(merits: Tensor) -> Tensor:
        """See `Targets.losses`."""
        return -merits.clamp(min=TINY).log().mean(-1)


def average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    """The average precision of each label, [L]; NaN for one that no image has.

    The sum over thresholds of the precision there, each weighted by the gain of recall; images with equal scores are
    taken together, as scikit-learn and torchmetrics do. `scores` and `labels` are [N, L].
    """
    scores, order = scores.sort(0, descending=True)
    hits = labels.gather(0, order)
    places = torch.arange(len(scores), device=scores.device)[:, None].expand_as(scores)
    last = torch.ones_like(scores, dtype=torch.bool)
    last[:-1] = scores[:-1] != scores[1:]  # of images with equal scores
    ends = torch.where(last, places, len(scores)).flip(0).cummin(0).values.flip(0)
    precision = hits.cumsum(0).gather(0, ends) / (ends + 1)
    return (precision * hits).sum(0) / hits.sum(0)


def of_all_labels(metric: OfLabels, probabilities: Tensor, labels: Tensor, names: Sequence[str]) -> Tensor:
    """One number for all labels; with `by_class` the mean over labels that some images have and some haven't."""
    from torchmetrics.functional import classification

    function = getattr(classification, metric.function)
    how: dict[str, Any] = {"num_labels": len(names), "validate_args": False, **metric.settings}
    if not metric.by_class:
        value: Tensor = function(probabilities, labels.long(), **how)
        return value
    each: Tensor = function(probabilities, labels.long(), average="none", **how)
    images = labels.sum(0)
    return each[(images > 0) & (images < len(labels))].mean()
