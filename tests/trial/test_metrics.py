"""Metrics by name: what is known, what is refused, and what a study makes of them."""

from pathlib import Path

import pytest
from PIL import Image

from tuner import ImageClassifier, RecallAtPrecision, Study, StudyError
from tuner.trial.tasks import ONE_LABEL, TASKS

NAMED = ONE_LABEL.named


def study(metric: str, *metrics: object) -> Study:
    return Study(
        "named", trial=ImageClassifier("digits", weights=None, metrics=list(metrics)), space={"lr": 0.1}, metric=metric
    )  # type: ignore[arg-type]


def test_a_metric_by_name_is_reported_and_has_its_own_mode() -> None:
    assert study("val_balanced_accuracy", "balanced_accuracy").mode == "max"
    assert study("val_calibration_error", "auroc", "calibration_error").mode == "min"
    assert study("val_recall_of_3_at_precision_0.9", RecallAtPrecision(0.9, of="3")).mode == "max"
    trial = ImageClassifier(metrics=["Cohen-Kappa", "cohen_kappa", "val_auroc"])
    assert trial.reports == (*ONE_LABEL.directions(()), "val_cohen_kappa", "val_auroc")
    assert trial.reproduced[-2:] == ("val_cohen_kappa", "val_auroc")
    with pytest.raises(StudyError, match="val_calibration_error is better low, got mode='max'"):
        Study(
            "n",
            trial=ImageClassifier(metrics=["calibration_error"]),
            space={"lr": 0.1},
            metric="val_calibration_error",
            mode="max",
        )


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["balanced_acuracy"], "metrics needs names of metrics, got 'balanced_acuracy'; did you mean 'balanced_accuracy'?"),
        (["ece"], "metrics needs names of metrics, got 'ece'; did you mean 'calibration_error'?"),
        (["macro_f1"], "metrics has what isn't always reported, got 'macro_f1'; leave it out, it is there as 'val_f1'"),
        (["zzz"], f"metrics needs names of metrics, got 'zzz'; it has {', '.join(NAMED)}"),
        ("auroc", "metrics needs a list of names, got 'auroc'; write metrics=['balanced_accuracy']"),
        ([3], f"metrics needs names or RecallAtPrecision(...), got 3; there are {', '.join(NAMED)}"),
    ],
)  # fmt: skip
def test_what_is_no_metric_is_refused_with_the_nearest(metrics: object, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        ImageClassifier(metrics=metrics)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("metric", "fix"),
    [
        ("val_auroc", "add metrics=['auroc'] to ImageClassifier, and write metric='val_auroc'"),
        ("auc", "add metrics=['auroc'] to ImageClassifier, and write metric='val_auroc'"),
        ("accuracy", "did you mean 'val_accuracy'?"),
        ("val_acuracy", "did you mean 'val_accuracy'?"),
        ("val_mae", "it is of task='number', and images have one label each"),
    ],
)
def test_a_studys_metric_that_is_not_reported_says_what_to_write(metric: str, fix: str) -> None:
    with pytest.raises(StudyError) as caught:
        study(metric)
    assert str(caught.value) == f"metric needs to be one that resnet18 on digits reports, got {metric!r}; {fix}"


def test_other_words_lead_to_metrics_that_there_are() -> None:
    for task in TASKS.values():
        assert {*task.other_words.values()} <= {*task.named, *task.metrics}
        assert not {*task.other_words} & {*task.named, *task.metrics}


@pytest.mark.parametrize(
    ("precision", "of", "message"),
    [
        (0, "cat", "RecallAtPrecision needs a precision above 0 and at most 1, got 0; write 0.9"),
        (90, "cat", "RecallAtPrecision needs a precision above 0 and at most 1, got 90; write 0.9"),
        (0.9, 3, "RecallAtPrecision needs the name of a class, got of=3; write of='cat'"),
        (0.9, " ", "RecallAtPrecision needs the name of a class, got of=' '; write of='cat'"),
    ],
)
def test_a_recall_at_a_precision_needs_both(precision: float, of: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        RecallAtPrecision(precision, of=of)
    assert str(caught.value) == message


def test_a_class_that_the_folder_has_not_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for name in ("my cat", "dog"):
        (tmp_path / name).mkdir()
        for index in range(3):
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{index}.png")
    trial = ImageClassifier(f"folder:{tmp_path}", weights=None, metrics=[RecallAtPrecision(0.9, of="my dog")])
    with pytest.raises(StudyError, match="needs a class of the data, got of='my dog'; did you mean 'dog'"):
        trial.check_files()
    known = ImageClassifier(f"folder:{tmp_path}", weights=None, metrics=[RecallAtPrecision(0.95, of="my cat")])
    known.check_files()
    assert known.reports[-1] == "val_recall_of_my_cat_at_precision_0.95"
