"""The base class of a task's arithmetic, and the metrics of predictions."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from tuner.train.tasks.objective import Objective
from tuner.trial.metrics import ChosenMetric
from tuner.trial.tasks import Label, Task

SCALES = 0.05, 20.0  # factors of logits; beyond this range models are always right, or never
STEPS = 25  # each narrows the search for a factor by a third: to 0.02 % of it


@dataclass(frozen=True)
class Metrics:
    """The metrics of a model's predictions for a split, by name: those of the task, and those of the user's choice."""

    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    @property
    def loss(self) -> float:
        """The mean loss of the images, without smoothing and weights."""
        return self.values["loss"]

    def by_name(self, split: str) -> dict[str, float]:
        """All metrics, named like `val_accuracy` for the split "val"."""
        return {f"{split}_{name}": value for name, value in self.values.items()}


@dataclass(frozen=True)
class Targets(ABC):
    """What a network is trained to answer, and what its outputs say; L outputs for each image.

    Labels of a split are a tensor, [N] int64 of classes or [N, L] of anything else.

    Attributes:
        names: of the outputs
    """

    names: tuple[str, ...]
    task: ClassVar[Task]

    @property
    def unit(self) -> float:
        """What a difference of two answers is measured in: 1 for probabilities."""
        return 1.0

    @staticmethod
    @abstractmethod
    def encoded(labels: Sequence[Label], names: Sequence[str]) -> np.ndarray:
        """Labels as numbers, [N] int64 or [N, L]."""

    @staticmethod
    @abstractmethod
    def given(labels: Any, part: str) -> Tensor:
        """The labels that a user's function returns for a part of the data, [N, L]; raises DataError."""

    @classmethod
    def of(cls, names: tuple[str, ...], labels: Tensor) -> Self:
        """The targets of training images with these labels."""
        return cls(names)

    def facts(self) -> dict[str, Any]:
        """What `with_facts` needs besides the names, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "names" and value is not None}

    def with_facts(self, facts: Mapping[str, Any]) -> Self:
        """The same targets, with some of what `facts` gave; raises KeyError, TypeError or ValueError for other ones."""
        known: dict[str, Any] = {name: float(value) for name, value in facts.items()}
        return replace(self, **known)

    @abstractmethod
    def objective(self, chosen: Mapping[str, Any], labels: Tensor, *, weighted: bool) -> Objective:
        """The training loss with these hyperparameters, for training images with these labels.

        `weighted` says that targets have their images' weights, see `tuner.train.data.splits.Weights`.
        """

    @abstractmethod
    def own_metrics(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The task's metrics as tensors [], from outputs [N, L] float32 and labels on the same device."""

    @abstractmethod
    def answers(self, outputs: Tensor) -> Tensor:
        """What outputs [N, L] say: probabilities, or numbers; [N, L] float32."""

    @abstractmethod
    def goodness(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """How good each answer is, [N] float64, higher is better: for paired comparisons of two networks."""

    @staticmethod
    @abstractmethod
    def together(outputs: Tensor, shares: Tensor) -> Tensor:
        """Outputs [N, L] that say the mean, weighted by shares [K], of what K networks' outputs [K, N, L] say."""

    @abstractmethod
    def merits(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """What outputs [K, N, L] are judged by, [K, N, J] float64: that of a mean answer is the mean of it."""

    @staticmethod
    @abstractmethod
    def losses(merits: Tensor) -> Tensor:
        """The loss of each answer [..., N], whose mean is that of `own_metrics`, from `merits` [..., N, J]."""

    def scales(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Factors [M] float64 of outputs [M, N, L] with which they are as sure as they are right: 1 / temperature.

        Those with the least loss, from 0.05 to 20; as that has one valley, thirds find it. After Guo et al. (2017), "On
        Calibration of Modern Neural Networks". Where all answers to few images are right, no factor would be too large.
        So a prior holds its logarithm near 0: a normal distribution with a deviation of 1.
        """
        low, high = (torch.full((len(outputs),), math.log(bound), dtype=torch.float64) for bound in SCALES)
        for _ in range(STEPS):
            third = (high - low) / 3
            nearer = self._scaled(outputs, labels, low + third) < self._scaled(outputs, labels, high - third)
            low, high = torch.where(nearer, low, low + third), torch.where(nearer, high - third, high)
        return ((low + high) / 2).exp()

    def _scaled(self, outputs: Tensor, labels: Tensor, logs: Tensor) -> Tensor:
        """The mean loss [M] of outputs times factors with these logarithms [M], with what is held of the factors."""
        losses = self.losses(self.merits(outputs * logs.exp().to(outputs)[:, None, None], labels))
        return losses.mean(1) + logs**2 / (2 * len(labels))

    def metrics(self, outputs: Tensor, labels: Tensor, chosen: Sequence[ChosenMetric] = ()) -> Metrics:
        """The metrics of outputs [N, L] for labels, on any devices, and the user's `chosen` ones."""
        labels = labels.to(outputs.device)
        with torch.inference_mode():
            found = self.own_metrics(outputs, labels)
            with _without_warnings():
                answers = self.answers(outputs.float()) if chosen else outputs
                for metric in chosen:
                    found[metric.name] = metric.compute(answers, labels, self.names).float().reshape(())
            values = torch.stack([value.double() for value in found.values()]).tolist()  # the host waits here, once
        return Metrics(dict(zip(found, values, strict=True)))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Without warnings of classes without images, which are handled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
