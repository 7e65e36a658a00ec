"""Several labels: each image has any number of them, also none, such as the tags of a photo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tuner.trial.metrics import NamedMetric, by_name
from tuner.trial.tasks.task import Label, LabelError, Strata, Task, is_name

BETWEEN = ";"  # labels in one cell
NONE = "(none)"  # what images without labels are called
YES_OR_NO = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


@dataclass(frozen=True)
class OfLabels(NamedMetric):
    """A metric of several labels, the mean over them."""

    computed_by: ClassVar[str] = "tuner.train.tasks.several_labels:of_all_labels"


class SeveralLabels(Task):
    """Any number of labels for each image: tuples of names, in the order of the outputs."""

    name = "several"
    called = ("multilabel", "multiple", "multi", "tags", "tagging", "severallabels", "labels")
    described = "several labels"
    of_columns = True
    needed = "a label that some training images have and others haven't"
    seen_by = "there are semicolons between labels"
    metric = "val_map"
    metric_reason = "every label counts alike, however few images have it, and needs no threshold yet"
    metrics: ClassVar = {"map": "max", "loss": "min", "f1": "max", "f1_micro": "max", "subset_accuracy": "max"}
    shares = ("subset_accuracy",)
    paired = "subset_accuracy"
    named: ClassVar = by_name(
        OfLabels("auroc", "max", "multilabel_auroc", by_class=True),
        OfLabels("precision", "max", "multilabel_precision", {"average": "macro"}),
        OfLabels("recall", "max", "multilabel_recall", {"average": "macro"}),
        OfLabels("label_accuracy", "max", "multilabel_accuracy", {"average": "micro"}),
    )
    other_words: ClassVar = {
        "mean_average_precision": "map",
        "average_precision": "map",
        "macro_f1": "f1",
        "f1_macro": "f1",
        "micro_f1": "f1_micro",
        "exact_match": "subset_accuracy",
        "accuracy": "subset_accuracy",
        "binary_cross_entropy": "loss",
        "auc": "auroc",
        "roc_auc": "auroc",
        "hamming": "label_accuracy",
    }
    alike = "with the same labels"
    stratum = ("label", "labels")
    when_uneven = "class_weights may help, and val_map and val_f1 count rare labels as much as others"
    fewest = 1
    training = "tuner.train.tasks.several_labels:LabelTargets"
    inspection = "tuner.inspection.tasks.several_labels:LabelAnswers"
    facts_file = "thresholds.json"
    plots = (
        "tuner.plots.several_labels:label_scores",
        "tuner.plots.several_labels:mistaken_together",
        "tuner.plots.classes:calibration",
    )

    def is_of(self, cells: Sequence[str]) -> bool:
        """See `Task.is_of`: labels have semicolons between them."""
        return any(BETWEEN in cell for cell in cells)

    def label(self, cells: Sequence[str], columns: Sequence[str]) -> Label:
        """See `Task.label`: labels between semicolons in one column, or a column of 0 and 1 for each label."""
        if len(columns) > 1:
            return tuple(name for name, cell in zip(columns, cells, strict=True) if _said(name, cell.strip()))
        labels = {label for part in cells[0].split(BETWEEN) if (label := part.strip())}
        for label in labels:
            if not is_name(label):
                raise LabelError("labels need names", label, "add them, or leave the cell empty for none")
        return tuple(sorted(labels))

    def outputs(self, labels: Iterable[Label], columns: Sequence[str]) -> tuple[str, ...]:
        """The columns, or all labels of one column, sorted."""
        several: Any = set(labels)
        return tuple(columns) if len(columns) > 1 else tuple(sorted({name for each in several for name in each}))

    def strata(self, labels: Counter[Label]) -> Strata:
        """The labels, an image with several is in several; and images without any."""
        several: Any = set(labels)
        names = (*self.outputs(several, ()), *[NONE] * (() in several))
        places = {name: place for place, name in enumerate(names)}
        return Strata(names, lambda label: tuple(places[name] for name in label or (NONE,)))  # type: ignore[union-attr]


def _said(name: str, cell: str) -> bool:
    said = YES_OR_NO.get(cell.casefold())
    if said is None:
        fix = "write 1 for images that have it and 0 for others"
        raise LabelError(f"the column {name!r} of a label needs 0 or 1", cell, fix)
    return said


SEVERAL_LABELS = SeveralLabels()
