"""One label: each image is of one class. What runs without a task have, and folders of classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from tuner.trial.metrics import NamedMetric, by_name
from tuner.trial.tasks.task import Label, LabelError, Strata, Task, is_name

TOP, TOP5 = 5, "top5_accuracy"  # reported of more classes than that, as it is always 1 of fewer


class OneLabel(Task):
    """One class for each image; labels are names."""

    name = "one"
    called = ("class", "classes", "classification", "multiclass", "single", "singlelabel", "onelabel")
    described = "one label"
    needed = "at least 2 labels"
    metric = "val_accuracy"
    metric_reason = "the classes have about as many images"
    metrics: ClassVar = {"accuracy": "max", "loss": "min", TOP5: "max", "f1": "max"}
    shares = ("accuracy", TOP5)
    paired = "accuracy"
    named: ClassVar = by_name(
        NamedMetric("balanced_accuracy", "max", "multiclass_accuracy", by_class=True),
        NamedMetric("precision", "max", "multiclass_precision", {"average": "macro"}),
        NamedMetric("weighted_f1", "max", "multiclass_f1_score", {"average": "weighted"}),
        NamedMetric("auroc", "max", "multiclass_auroc", by_class=True),
        NamedMetric("average_precision", "max", "multiclass_average_precision", by_class=True),
        NamedMetric("cohen_kappa", "max", "multiclass_cohen_kappa"),
        NamedMetric("matthews_correlation", "max", "multiclass_matthews_corrcoef"),
        NamedMetric(
            "calibration_error", "min", "multiclass_calibration_error", {"n_bins": 15}, rises_when_resampled=True
        ),
    )
    other_words: ClassVar = {
        "macro_f1": "f1",
        "f1_macro": "f1",
        "cross_entropy": "loss",
        "recall": "balanced_accuracy",
        "macro_recall": "balanced_accuracy",
        "auc": "auroc",
        "roc_auc": "auroc",
        "kappa": "cohen_kappa",
        "ece": "calibration_error",
        "expected_calibration_error": "calibration_error",
        "mcc": "matthews_correlation",
        "map": "average_precision",
    }
    stratum = ("class", "classes")
    alike, differing = "in a class", "in two classes"
    when_uneven = "class_weights may help, and val_f1 says more than val_accuracy"
    training = "tuner.train.tasks.one_label:ClassTargets"
    inspection = "tuner.inspection.tasks.one_label:ClassAnswers"
    plots = ("tuner.plots.mistakes:confusion", "tuner.plots.classes:classes", "tuner.plots.classes:calibration")

    def label(self, cells: Sequence[str], columns: Sequence[str]) -> Label:
        """See `Task.label`: a name, as it is written."""
        label = cells[0].strip()
        if not is_name(label):
            raise LabelError("every row needs a label", label, "add it")
        return label

    def outputs(self, labels: Iterable[Label], columns: Sequence[str]) -> tuple[str, ...]:
        """The classes, sorted."""
        return tuple(sorted({str(label) for label in labels}))

    def strata(self, labels: Counter[Label]) -> Strata:
        """The classes."""
        names = self.outputs(labels, ())
        places = {name: (place,) for place, name in enumerate(names)}
        return Strata(names, places.__getitem__)  # type: ignore[arg-type]  # labels are names


ONE_LABEL = OneLabel()
