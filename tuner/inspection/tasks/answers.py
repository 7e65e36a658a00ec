"""The base class of what outputs mean, and of predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from tuner.results.run import RecordedRun
from tuner.train.tasks import Targets

SHOWN = 16
Validated = tuple[Tensor, Tensor]  # outputs and labels of the validation images
T = TypeVar("T", bound=Targets)


@dataclass(frozen=True)
class Prediction(ABC):
    """A model's answer to an image file.

    Attributes:
        path: of the file
    """

    path: Path

    @property
    @abstractmethod
    def cells(self) -> tuple[str | float, ...]:
        """The answer, for the columns of a CSV file, see `Answers.columns`."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The answer, for people."""
        return tuple(f"{cell:.4g}" if isinstance(cell, float) else cell for cell in self.cells)

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        told = asdict(self)
        return {"image": str(told.pop("path")), **told}


@dataclass(frozen=True)
class Answers(ABC, Generic[T]):
    """What outputs for these targets mean.

    Attributes:
        targets: what the network answers, with what `learn` found on validation images
        columns: of a table of predictions
        output: what an exported model calls its answers
        apart_in: what differences of two answers are told in
        kind: what a model with such answers is called
        outputs: what its outputs are called
        headline: the most important metric of the test split, and what it is called
        measure: what `quality` is called
        limits: sentences of a model card about what answers don't say
        answering: what turns outputs into answers, in words
        finish: the end of an expression of an export's predict.py that turns outputs [1, L] into answers [L]
        tell: a line of it that prints the `answers` [L] to the image at `path`
    """

    targets: T
    columns: ClassVar[tuple[str, ...]]
    output: ClassVar[str] = "probabilities"
    apart_in: ClassVar[str] = "of a probability"
    kind: ClassVar[str]
    outputs: ClassVar[str]
    headline: ClassVar[tuple[str, str]]
    measure: ClassVar[str] = "accuracy"
    limits: ClassVar[tuple[str, ...]]
    answering: ClassVar[str]
    finish: ClassVar[str]
    tell: ClassVar[str]

    def learn(self, validated: Validated) -> dict[str, Any]:
        """What is best known from validation images, as plain data for `Targets.with_facts`."""
        return {}

    @abstractmethod
    def files(self, outputs: Tensor, labels: Tensor, validated: Validated | None) -> dict[str, Any]:
        """The content of the task's own files in `best/`, by name, from outputs [N, L] for the test images."""

    @abstractmethod
    def worst(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Indices of the images that are most wrong: at most 16, the worst first, ties in order."""

    def least_sure(self, outputs: Tensor) -> Tensor | None:
        """Indices of the images with the least sure answers, at most 16; None if answers have no confidence."""
        return None

    @abstractmethod
    def shown(self, outputs: Tensor, labels: Tensor) -> list[dict[str, Any]]:
        """For each image its "label", what was "predicted", and the "confidence" if answers have one."""

    @abstractmethod
    def prediction(self, path: Path, values: Sequence[float]) -> Prediction:
        """The prediction for an image file, from `Targets.answers`."""

    def counts(self, labels: Tensor) -> dict[str, int]:
        """How many images each class has; empty for a task without classes."""
        return {}

    def share_right(self, answers: Tensor, labels: Tensor) -> float | None:
        """The share of images with right `Targets.answers` [N, L], all of them; None for a task without such."""
        return None

    def quality(self, answers: Tensor, labels: Tensor) -> float:
        """How good `Targets.answers` [N, L] are, higher is better: of which an export may lose a little."""
        return self.share_right(answers, labels) or 0.0

    def goodness(self, run: RecordedRun) -> Iterator[str]:
        """Paragraphs of a model card about how good the run's winner is."""
        name, called = self.headline
        low, high, method = run.test_intervals.get(f"test_{name}", (None, None, ""))
        value, images = run.best_metrics[f"test_{name}"], run.images["test"]
        within = "" if low is None else f", 95 % interval {low:.4f} to {high:.4f} ({method.capitalize()})"
        yield f"{called} on {images:,} test images that no trial saw: **{value:.4f}**{within}."

    @property
    def facts(self) -> dict[str, Any]:
        """What a program needs to use the answers of an export."""
        return {"task": self.targets.task.name, **self.targets.facts()}


def first(order: Tensor) -> Tensor:
    """The first 16 indices."""
    return order[:SHOWN]


def highest(values: Tensor) -> Tensor:
    """Indices [N] from the highest of values [N] on, ties in order."""
    return torch.argsort(values, descending=True, stable=True)
