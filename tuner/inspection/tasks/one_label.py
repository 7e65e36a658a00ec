"""One class for each image: probabilities, confusions, calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from tuner.history.scored import CALIBRATION, CONFUSION
from tuner.inspection.tasks.answers import SHOWN, Answers, Prediction, Validated
from tuner.inspection.tasks.calibration import calibration
from tuner.results.run import RecordedRun
from tuner.results.wording import wilson
from tuner.train.tasks.one_label import ClassTargets
from tuner.trial.tasks.one_label import TOP

SHOWN_CONFUSIONS = 10
SHOWN_CLASSES = 200


@dataclass(frozen=True)
class ClassPrediction(Prediction):
    """A model's answer to an image file: the likeliest class, and the five likeliest with their probabilities."""

    label: str
    confidence: float
    top5: tuple[tuple[str, float], ...]

    @property
    def cells(self) -> tuple[str | float, ...]:
        """See `Prediction.cells`."""
        return self.label, self.confidence

    @property
    def shown(self) -> tuple[str, ...]:
        """See `Prediction.shown`."""
        return self.label, f"{self.confidence:.1%}"

    def record(self) -> dict[str, Any]:
        """See `Prediction.record`."""
        return {**super().record(), "top5": dict(self.top5)}


@dataclass(frozen=True)
class ClassAnswers(Answers[ClassTargets]):
    """Classes, from logits [N, classes]."""

    columns: ClassVar = ("class", "confidence")
    kind: ClassVar = "An image classifier"
    outputs: ClassVar = "classes"
    headline: ClassVar = ("accuracy", "Accuracy")
    limits: ClassVar = (
        "Every image gets one of the labels, also one that shows something else.",
        "The probabilities are those of the network; the calibration above says how far to believe them.",
    )
    answering: ClassVar = "softmax"
    finish: ClassVar = "softmax(1)[0]"
    tell: ClassVar = """print(f"{path}\\t{facts['labels'][answers.argmax()]}\\t{answers.max():.4f}")"""

    def files(self, outputs: Tensor, labels: Tensor, validated: Validated | None) -> dict[str, Any]:
        """The confusion matrix, and how well calibrated answers are."""
        counts = confusion_matrix(labels, outputs.argmax(1), len(self.targets.names))
        return {
            CONFUSION: {"classes": list(self.targets.names), "counts": counts},
            CALIBRATION: asdict(calibration(outputs, labels, validated)),
        }

    def worst(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See `Answers.worst`: wrong answers, the most confident first."""
        confidence, predicted = outputs.softmax(1).max(1)
        wrong = (predicted != labels).nonzero().flatten()
        return wrong[confidence[wrong].argsort(descending=True, stable=True)][:SHOWN]

    def least_sure(self, outputs: Tensor) -> Tensor:
        """See `Answers.least_sure`."""
        return outputs.softmax(1).amax(1).argsort(stable=True)[:SHOWN]

    def shown(self, outputs: Tensor, labels: Tensor) -> list[dict[str, Any]]:
        """See `Answers.shown`."""
        confidence, answers = outputs.softmax(1).max(1)
        told = zip(labels.tolist(), answers.tolist(), confidence.tolist(), strict=True)
        names = self.targets.names
        return [{"label": names[label], "predicted": names[one], "confidence": sure} for label, one, sure in told]

    def prediction(self, path: Path, values: Sequence[float]) -> ClassPrediction:
        """See `Answers.prediction`."""
        names = self.targets.names
        best, order = torch.tensor(values).topk(min(TOP, len(names)))
        top = tuple((names[index], value) for index, value in zip(order.tolist(), best.tolist(), strict=True))
        return ClassPrediction(path, label=top[0][0], confidence=top[0][1], top5=top)

    def counts(self, labels: Tensor) -> dict[str, int]:
        """See `Answers.counts`."""
        names = self.targets.names
        return dict(zip(names, torch.bincount(labels, minlength=len(names)).tolist(), strict=False))

    def share_right(self, answers: Tensor, labels: Tensor) -> float:
        """See `Answers.share_right`."""
        return float((answers.argmax(1) == labels).double().mean())

    def goodness(self, run: RecordedRun) -> Iterator[str]:
        """The accuracy, each class with its interval, the most frequent confusions, and the calibration."""
        yield from super().goodness(run)
        if matrix := run.scored(CONFUSION):
            yield from _classes(matrix["classes"], matrix["counts"])
        if found := run.scored(CALIBRATION):
            yield (
                f"It is sure of its answers by {found['confidence']:.3f} on average and right in "
                f"{found['accuracy']:.3f} (expected calibration error {found['ece']:.3f}{_scaled(found)})."
            )


def confusion_matrix(labels: Tensor, predicted: Tensor, classes: int) -> list[list[int]]:
    """How often each class [row] was predicted as each class [column], from labels and predictions [N] int64."""
    counts = torch.bincount(labels * classes + predicted, minlength=classes * classes)
    rows: list[list[int]] = counts.view(classes, classes).tolist()
    return rows


def _scaled(calibration: Mapping[str, Any]) -> str:
    if calibration["temperature"] is None:
        return ""
    return f"; {calibration['scaled_ece']:.3f} with logits divided by {calibration['temperature']:.3g}"


def _classes(names: Sequence[str], counts: Sequence[Sequence[int]]) -> Iterator[str]:
    rows = ["| class | test images | recall | 95 % interval | precision |", "|---|---|---|---|---|"]
    for index, name in enumerate(names[:SHOWN_CLASSES]):
        total, right = sum(counts[index]), counts[index][index]
        answered = sum(row[index] for row in counts)
        precision = f"{right / answered:.3f}" if answered else "–"  # noqa: RUF001
        if total:
            low, high = wilson(right, total)
            rows.append(f"| {name} | {total} | {right / total:.3f} | {low:.3f} to {high:.3f} | {precision} |")
    yield "\n".join(rows)
    wrong = [
        (count, names[row], names[column])
        for row, line in enumerate(counts)
        for column, count in enumerate(line)
        if row != column and count
    ]
    if wrong:
        worst = sorted(wrong, key=lambda one: -one[0])[:SHOWN_CONFUSIONS]
        yield "It confuses most: " + "; ".join(f"{a} taken for {b} ({count})" for count, a, b in worst) + "."
