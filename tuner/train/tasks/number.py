"""A number for each image: losses of standardised numbers, mean errors in the user's unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tuner.errors import DataError
from tuner.train.tasks.base import Targets
from tuner.train.tasks.objective import Objective, at_least_float32
from tuner.trial.tasks import NUMBER, Label
from tuner.trial.tasks.number import OfNumbers

LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}


@dataclass(frozen=True)
class NumberLoss(Objective):
    """The loss of standardised numbers, of which targets [B, 1] are those of the user's unit.

    Attributes:
        kind: "mse", "mae" or "huber"
        mean, deviation: of the training images' numbers
    """

    kind: str
    mean: float
    deviation: float

    def total(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `Objective.total`; targets are [B, 1], with a second column of their images' weights."""
        wanted = ((targets[:, :1] - self.mean) / self.deviation).float()
        each = LOSSES[self.kind](at_least_float32(outputs), wanted, reduction="none")[:, 0]
        return (each * targets[:, -1]).sum() if self.weighted else each.sum()


@dataclass(frozen=True)
class NumberTargets(Targets):
    """A number, [N, 1] float64 in the user's unit; outputs are standardised.

    Attributes:
        mean, deviation: of the training images' numbers
        low, high: between which most errors lie, truth minus answer, in the user's unit; None if that isn't known
    """

    mean: float = 0.0
    deviation: float = 1.0
    low: float | None = None
    high: float | None = None
    task: ClassVar = NUMBER

    @property
    def unit(self) -> float:
        """See `Targets.unit`: the standard deviation."""
        return self.deviation

    @staticmethod
    def encoded(labels: Sequence[Label], names: Sequence[str]) -> np.ndarray:
        """See `Targets.encoded`."""
        return np.array(labels, dtype=np.float64)[:, None]

    @staticmethod
    def given(labels: Any, part: str) -> Tensor:
        """See `Targets.given`: finite numbers, [N] or [N, 1]."""
        found = torch.as_tensor(np.asarray(labels, dtype=np.float64))
        found = found[:, None] if found.ndim == 1 else found
        if found.ndim != 2 or found.shape[1] != 1 or not bool(found.isfinite().all()):
            raise DataError(f"labels must be finite numbers, [N], got {list(found.shape)} for {part}; correct them")
        return found

    @classmethod
    def of(cls, names: tuple[str, ...], labels: Tensor) -> Self:
        """See `Targets.of`; equal numbers have a deviation of 1."""
        deviation = float(labels.double().std(correction=0))
        return cls(names, float(labels.double().mean()), deviation or 1.0)

    def objective(self, chosen: Mapping[str, Any], labels: Tensor, *, weighted: bool) -> Objective:
        """The loss that the hyperparameter of this name chooses."""
        return NumberLoss(chosen["loss"], self.mean, self.deviation, weighted=weighted)

    def own_metrics(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Mean absolute error, root mean squared error, R², and the mean squared error of standardised numbers."""
        wrong = self.answers(outputs.double()) - labels
        squared = wrong.square().mean()
        return {
            "mae": wrong.abs().mean(),
            "rmse": squared.sqrt(),
            "r2": 1 - squared / labels.var(correction=0),
            "loss": squared / self.deviation**2,
        }

    def answers(self, outputs: Tensor) -> Tensor:
        """Numbers in the user's unit."""
        return outputs * self.deviation + self.mean

    def goodness(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The absolute error, negative."""
        return -(self.answers(outputs.double()) - labels).abs()[:, 0]

    @staticmethod
    def together(outputs: Tensor, shares: Tensor) -> Tensor:
        """The mean."""
        return (outputs * shares[:, None, None]).sum(0)

    def merits(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Errors of standardised numbers, J = 1."""
        return (self.answers(outputs.double()) - labels) / self.deviation

    def scales(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """All 1: numbers are no logits."""
        return torch.ones(len(outputs), dtype=torch.float64)

    @staticmethod
    def losses(merits: Tensor) -> Tensor:
        """See `Targets.losses`."""
        return merits.square()[..., 0]


def of_numbers(metric: OfNumbers, numbers: Tensor, labels: Tensor, names: Sequence[str]) -> Tensor:
    """A metric of numbers [N, 1], by torchmetrics."""
    from torchmetrics.functional import regression

    value: Tensor = getattr(regression, metric.function)(numbers[:, 0].float(), labels[:, 0].float())
    return value
