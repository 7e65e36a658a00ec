"""Several labels for each image: a threshold for each label, precision and recall, mistakes that come together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from tuner.history.scored import CALIBRATION, LABELS
from tuner.inspection.tasks.answers import Answers, Prediction, Validated, first, highest
from tuner.inspection.tasks.calibration import calibration
from tuner.results.run import RecordedRun
from tuner.results.wording import wilson
from tuner.train.tasks.several_labels import HALF, LabelTargets, average_precision

FEWEST = 5  # validation images with a label, and without it, for a threshold of its own
SHOWN_LABELS = 200


@dataclass(frozen=True)
class LabelsPrediction(Prediction):
    """A model's answer to an image file: the labels from their thresholds on, and the probability of every label."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]

    @property
    def cells(self) -> tuple[str | float, ...]:
        """See `Prediction.cells`."""
        return (";".join(self.labels),)

    @property
    def shown(self) -> tuple[str, ...]:
        """See `Prediction.shown`."""
        return (", ".join(f"{label} {self.probabilities[label]:.0%}" for label in self.labels) or "none",)


@dataclass(frozen=True)
class LabelAnswers(Answers[LabelTargets]):
    """Labels, from logits [N, L]."""

    columns: ClassVar = ("labels",)
    kind: ClassVar = "A classifier of images with several labels"
    outputs: ClassVar = "labels"
    headline: ClassVar = ("map", "Mean average precision")
    measure: ClassVar = "accuracy of all labels of an image"
    limits: ClassVar = (
        "An image that shows something else may get no label, or wrong ones.",
        "A label is answered from its threshold on, which was best on validation images (F1).",
    )
    answering: ClassVar = "sigmoid"
    finish: ClassVar = "sigmoid()[0]"
    tell: ClassVar = """\
limits = facts["answers"].get("thresholds", {})
    said = [label for label, share in zip(facts["labels"], answers, strict=True) if share >= limits.get(label, 0.5)]
    print(f"{path}\\t{';'.join(said)}")"""

    def learn(self, validated: Validated) -> dict[str, Any]:
        """The threshold of each label with the highest F1 on validation images; one half for a label of few images."""
        outputs, labels = validated
        each = zip(self.targets.names, outputs.double().sigmoid().T, labels.T > HALF, strict=True)
        return {"thresholds": {name: best_threshold(shares, has) for name, shares, has in each}}

    def files(self, outputs: Tensor, labels: Tensor, validated: Validated | None) -> dict[str, Any]:
        """Each label's right and wrong answers, how often two are wrong on the same image, and the calibration."""
        said, has = self.targets.said(outputs), labels > HALF
        wrong = (said != has).double()
        precision = average_precision(outputs, labels).tolist()
        return {
            LABELS: {
                "labels": list(self.targets.names),
                "thresholds": list(self.targets.thresholds or [HALF] * len(self.targets.names)),
                "hits": (said & has).sum(0).tolist(),
                "answered": said.sum(0).tolist(),
                "having": has.sum(0).tolist(),
                "average_precision": [None if math.isnan(value) else value for value in precision],
                "wrong_together": (wrong.T @ wrong).long().tolist(),
            },
            CALIBRATION: asdict(calibration(*decisions(outputs, labels), validated and decisions(*validated))),
        }

    def worst(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See `Answers.worst`: by the sum of the wrong labels' distances from their thresholds."""
        limits = torch.tensor(self.targets.thresholds or [HALF] * len(self.targets.names))
        wrong = self.targets.said(outputs) != (labels > HALF)
        far = ((outputs.sigmoid() - limits).abs() * wrong).sum(1)
        return first(highest(far)[: int(wrong.any(1).sum())])

    def shown(self, outputs: Tensor, labels: Tensor) -> list[dict[str, Any]]:
        """See `Answers.shown`; labels are joined by commas."""
        said = self.targets.said(outputs).tolist()
        return [
            {"label": self._joined(has), "predicted": self._joined(row)}
            for has, row in zip((labels > HALF).tolist(), said, strict=True)
        ]

    def prediction(self, path: Path, values: Sequence[float]) -> LabelsPrediction:
        """See `Answers.prediction`."""
        shares = dict(zip(self.targets.names, values, strict=True))
        limits = self.targets.facts().get("thresholds", {})
        labels = tuple(name for name, share in shares.items() if share >= limits.get(name, HALF))
        return LabelsPrediction(path, labels, shares)

    def counts(self, labels: Tensor) -> dict[str, int]:
        """See `Answers.counts`."""
        return dict(zip(self.targets.names, labels.sum(0).long().tolist(), strict=True))

    def share_right(self, answers: Tensor, labels: Tensor) -> float:
        """See `Answers.share_right`: all labels of an image."""
        return float((self.targets.said(answers.logit()) == (labels > HALF)).all(1).double().mean())

    def goodness(self, run: RecordedRun) -> Iterator[str]:
        """The mean average precision, and each label with its threshold, recall and precision."""
        yield from super().goodness(run)
        found = run.scored(LABELS)
        if found is None:
            return
        rows = ["| label | test images | threshold | recall | 95 % interval | precision |", "|---|---|---|---|---|---|"]
        columns = (found[name] for name in ("labels", "having", "thresholds", "hits", "answered"))
        for name, having, limit, hits, answered in list(zip(*columns, strict=True))[:SHOWN_LABELS]:
            low, high = wilson(hits, having) if having else (0.0, 1.0)
            recall, precision = (f"{hits / of:.3f}" if of else "–" for of in (having, answered))  # noqa: RUF001
            rows.append(f"| {name} | {having} | {limit:.2f} | {recall} | {low:.3f} to {high:.3f} | {precision} |")
        yield "\n".join(rows)

    def _joined(self, has: Sequence[bool]) -> str:
        return ", ".join(name for name, one in zip(self.targets.names, has, strict=True) if one) or "none"


def decisions(outputs: Tensor, labels: Tensor) -> Validated:
    """Each label of each image as one of two classes: logits [N * L, 2] and classes [N * L]."""
    yes = outputs.flatten()
    return torch.stack([torch.zeros_like(yes), yes], 1), (labels > HALF).flatten().long()


def best_threshold(shares: Tensor, has: Tensor) -> float:
    """The threshold with the highest F1, in the middle between two probabilities; one half with few images.

    Args:
        shares: [N] float64, probabilities of a label
        has: [N] bool, whether images have it
    """
    if min(int(has.sum()), int((~has).sum())) < FEWEST:
        return HALF
    ordered, order = shares.sort(descending=True)
    hits = has[order].cumsum(0)
    f1 = 2 * hits / (torch.arange(1, len(hits) + 1) + has.sum())
    between = torch.ones_like(has)
    between[:-1] = ordered[:-1] > ordered[1:]  # no threshold parts equal probabilities
    best = int(torch.where(between, f1, -1.0).argmax())
    below = float(ordered[best + 1]) if best + 1 < len(ordered) else 0.0
    return (float(ordered[best]) + below) / 2
