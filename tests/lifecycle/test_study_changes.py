import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tuner import Budget, ImageClassifier, Random, Study, uniform
from tuner.errors import RunFolderError
from tuner.lifecycle.study_changes import StudyText, check_comparable, comparable


def train(config: dict[str, Any]) -> None:
    """Never called."""


STUDY = Study("simple", trial=train, space={"x": uniform(0, 1)}, metric="loss", mode="min")
DIGITS = Study(
    "digits",
    trial=ImageClassifier("digits", "resnet18", weights=None),
    space={"momentum": uniform(0, 0.9)},
    metric="val_accuracy",
)


def of_run(study: Study) -> dict[str, Any]:
    trial = study.declared_trial
    return {
        "comparable": comparable(study),
        "data_fingerprint": trial.fingerprint(),
        "weights_fingerprint": trial.weights_fingerprint(),
    }


def test_a_study_goes_on_with_a_run_of_its_own() -> None:
    check_comparable(STUDY, of_run(STUDY), "study.py")
    check_comparable(replace(STUDY, search=Random(), name="other", budget=Budget(trials=3)), of_run(STUDY), "study.py")


def test_a_run_that_recorded_nothing_to_compare_is_trusted() -> None:
    check_comparable(STUDY, {"data_fingerprint": "another"}, "study.py")


@pytest.mark.parametrize(
    ("study", "change", "told"),
    [
        (STUDY, {"metric": "error"}, "metric that it began with 'loss', got another one 'error'"),
        (STUDY, {"mode": "max"}, "mode that it began with 'min', got another one 'max'"),
        (STUDY, {"seed": 3}, "seed that it began with 0, got another one 3"),
        (
            STUDY,
            {"space": {"x": uniform(0, 2), "y": 3}},
            "space that it began with, got another one (x uniform(0, 2), was uniform(0, 1); y 3, was not in it)",
        ),
        (
            DIGITS,
            {"trial": ImageClassifier("digits", "resnet34", weights=None)},
            "model that it began with 'resnet18', got another one 'resnet34'",
        ),
    ],
)
def test_what_would_make_trials_differ_is_refused_by_its_name(study: Study, change: dict[str, Any], told: str) -> None:
    with pytest.raises(RunFolderError) as refused:
        check_comparable(replace(study, **change), of_run(study), "study.py")
    assert str(refused.value) == (
        f"a run keeps the {told} in study.py: trials could not be compared; change it back, or start a new run, "
        "which learns from this one"
    )


def test_a_weights_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "mine.pth").write_bytes(b"weights")
    study = replace(DIGITS, trial=ImageClassifier("digits", "resnet18", weights=file))
    info = of_run(study)
    check_comparable(study, info, "study.py")
    check_comparable(study, {**info, "weights_fingerprint": None}, "study.py")  # an earlier version's run
    file.write_bytes(b"WEIGHTS")  # of the same size
    with pytest.raises(
        RunFolderError,
        match=rf"^a run keeps the weights that it began with, got other contents of {file} for study\.py: trials could "
        "not be compared; restore the file, or start a new run$",
    ):
        check_comparable(study, info, "study.py")
    file.unlink()
    check_comparable(study, info, "study.py")  # that it is missing is said by what looks for the trial's files


def test_a_study_file_is_changed_if_its_text_is_another_one() -> None:
    changed = [StudyText("now", before).changed for before in ("before", "now", None)]
    assert changed == [True, False, False]


def test_other_data_is_refused() -> None:
    with pytest.raises(
        RunFolderError, match=r"a run keeps the data that it began with, got other files of digits for study\.py"
    ):
        check_comparable(DIGITS, {**of_run(DIGITS), "data_fingerprint": "another"}, "study.py")


def test_other_data_is_refused_with_the_files_that_are_newer_than_the_run(tmp_path: Path) -> None:
    for place in ("cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"):
        (tmp_path / "photos" / place).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / place)
        os.utime(tmp_path / "photos" / place, (1000, 1000))
    study = replace(DIGITS, trial=ImageClassifier(f"folder:{tmp_path / 'photos'}", weights=None))
    info = {**of_run(study), "started": "2026-01-01T00:00:00+00:00"}
    check_comparable(study, info, "study.py")
    (tmp_path / "photos/cat/1.png").unlink()
    with pytest.raises(
        RunFolderError,
        match=rf"files of folder:{tmp_path}/photos for study\.py \(none is newer than the run: some were removed, renamed, or ",
    ):
        check_comparable(study, info, "study.py")
    (tmp_path / "photos/cat/new.png").write_bytes((tmp_path / "photos/cat/0.png").read_bytes())
    with pytest.raises(
        RunFolderError, match=rf"\(newer than the run: {tmp_path}/photos/cat/new\.png\): trials could not "
    ):
        check_comparable(study, info, "study.py")
