"""A number for each image: errors in the user's unit, and the interval in which most of them lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from tuner.history.scored import NUMBERS
from tuner.inspection.tasks.answers import Answers, Prediction, Validated, first, highest
from tuner.results.run import RecordedRun
from tuner.train.tasks.number import NumberTargets

LEVEL = 0.9  # of the validation images whose errors lie in the interval
FEWEST = 20  # validation images for an interval


@dataclass(frozen=True)
class NumberPrediction(Prediction):
    """A model's answer to an image file: the number, and between which ones 90 % of the truth lie; None if unknown."""

    value: float
    low: float | None
    high: float | None

    @property
    def cells(self) -> tuple[str | float, ...]:
        """See `Prediction.cells`."""
        return self.value, *("" if bound is None else bound for bound in (self.low, self.high))


@dataclass(frozen=True)
class NumberAnswers(Answers[NumberTargets]):
    """Numbers, from standardised ones [N, 1]."""

    columns: ClassVar = ("value", "from", "to")
    output: ClassVar = "numbers"
    apart_in: ClassVar = "in standard deviations"
    kind: ClassVar = "A regression of images"
    outputs: ClassVar = "number"
    headline: ClassVar = ("mae", "Mean absolute error")
    measure: ClassVar = "negative mean absolute error in standard deviations"
    limits: ClassVar = (
        "Every image gets a number, also one that shows something else.",
        "Numbers beyond those of the training images aren't reached.",
    )
    answering: ClassVar = "the user's unit"
    finish: ClassVar = """squeeze(0) * facts["answers"]["deviation"] + facts["answers"]["mean"]"""
    tell: ClassVar = """print(f"{path}\\t{float(answers[0]):.6g}")"""

    def learn(self, validated: Validated) -> dict[str, Any]:
        """The quantiles between which 90 % of the errors of validation images lie: truth minus answer."""
        outputs, labels = validated
        if len(labels) < FEWEST:
            return {}
        errors = (labels - self.targets.answers(outputs.double()))[:, 0]
        return {"low": float(errors.quantile((1 - LEVEL) / 2)), "high": float(errors.quantile((1 + LEVEL) / 2))}

    def files(self, outputs: Tensor, labels: Tensor, validated: Validated | None) -> dict[str, Any]:
        """The number and the answer of each test image."""
        answers = self.targets.answers(outputs.double())[:, 0]
        return {NUMBERS: {"name": self.targets.names[0], "labels": labels[:, 0].tolist(), "answers": answers.tolist()}}

    def worst(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See `Answers.worst`: by the error."""
        return first(highest(-self.targets.goodness(outputs, labels)))

    def shown(self, outputs: Tensor, labels: Tensor) -> list[dict[str, Any]]:
        """See `Answers.shown`."""
        answers = self.targets.answers(outputs.double())
        told = zip(labels[:, 0].tolist(), answers[:, 0].tolist(), strict=True)
        return [{"label": f"{label:.4g}", "predicted": f"{answer:.4g}"} for label, answer in told]

    def prediction(self, path: Path, values: Sequence[float]) -> NumberPrediction:
        """See `Answers.prediction`."""
        bounds = (None if error is None else values[0] + error for error in (self.targets.low, self.targets.high))
        return NumberPrediction(path, values[0], *bounds)

    def quality(self, answers: Tensor, labels: Tensor) -> float:
        """See `Answers.quality`."""
        return -float((answers - labels).abs().mean()) / self.targets.unit

    def goodness(self, run: RecordedRun) -> Iterator[str]:
        """The mean absolute error."""
        yield from super().goodness(run)
        if self.targets.low is not None and self.targets.high is not None:
            yield (
                f"On validation images the truth was {self.targets.low:+.4g} to {self.targets.high:+.4g} beside the "
                f"answer in {LEVEL:.0%}."
            )
