from pathlib import Path
from typing import Any

import pytest

from tests.history.events_of_a_run import ended, event, fold, reported, started
from tuner.history.records import RunRecord
from tuner.results.wording import (
    best_so_far,
    duration,
    epochs_spent,
    hours,
    outcome,
    plural,
    settings,
    short,
    shown_path,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00093, "0.00093"),
        (0.123456789, "0.1235"),
        (1e-5, "1e-05"),
        (2.0, "2"),
        (32, "32"),
        (True, "True"),
        (None, "None"),
        ("adam", "adam"),
        ([8, 16], "[8, 16]"),
    ],
)
def test_a_value_takes_few_characters(value: Any, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.6, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (360_000, "100 h 00 min"),
    ],
)
def test_a_time_is_rounded_before_it_is_split(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_settings_stand_on_one_line_under_dotted_names() -> None:
    assert settings({"lr": 0.0012345678, "net": {"width": 8}, "optimizer": "sgd"}) == (
        "lr=0.001235 net.width=8 optimizer=sgd"
    )
    assert settings({}) == ""


def test_one_is_singular() -> None:
    assert [plural(count, "trial") for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]


def test_the_epochs_are_told_by_what_became_of_their_trials() -> None:
    told = [
        *(started(0), reported(0, 1), reported(0, 2), ended(0, "completed")),
        *(started(1), reported(1, 1), ended(1, "stopped", by="early_stopping")),
        *(started(2), reported(2, 1), ended(2, "stopped")),
        *(started(3), reported(3, 1), ended(3, "stopped", by="total_epochs")),
        *(started(7), reported(7, 1, 0.0, "pause"), ended(7, "stopped", by="total_epochs")),
        *(started(4), reported(4, 1), ended(4, "failed", cause="error", message="x")),
        *(started(5), reported(5, 1), started(6)),
    ]
    assert epochs_spent(fold(*told)) == (
        "8 epochs: 2 in 1 trial trained to the end, 3 in 3 trials stopped early, 1 in 1 trial that failed, "
        "1 in 1 trial cut off at the search's end, 1 in 1 trial that can go on"
    )
    assert epochs_spent(fold(started(0), ended(0, "failed", cause="error", message="x"))) == "0 epochs"


def test_epochs_that_were_trained_again_are_told_in_addition() -> None:
    told = [started(0), reported(0, 1), reported(0, 2), event("study_resumed"), started(0), reported(0, 1)]
    again = "2 epochs: 2 in 1 trial that can go on; in addition 1 trained again after interruptions"
    assert epochs_spent(fold(*told)) == again


def test_the_incumbent_is_named_with_its_epoch_and_settings() -> None:
    record = fold(started(7, 0.0, {"lr": 0.25}), reported(7, 1, accuracy=0.5), reported(7, 2, accuracy=0.25))
    assert best_so_far(record) == "accuracy 0.5 (trial 00007, epoch 1: lr=0.25)"


def test_without_a_value_there_is_no_incumbent() -> None:
    assert best_so_far(fold(started(0))) == "none yet"


def test_a_failure_says_its_cause_and_any_other_outcome_is_the_status() -> None:
    record = fold(started(0), ended(0, "failed", cause="diverged"), started(1), ended(1, "stopped"), started(2))
    assert [outcome(trial) for trial in record.trials.values()] == ["failed: diverged", "stopped", "running"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (3e-6, "under 0.01"), (0.012, "0.012"), (0.25, "0.25"), (12.51, "12.5"), (140.2, "140")],
)
def test_hours_are_told_as_people_say_them(count: float, text: str) -> None:
    assert hours(count) == text


def test_a_path_below_the_working_directory_is_told_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(str(tmp_path / "runs" / "a")) == "runs/a"
    assert shown_path("/elsewhere/runs") == "/elsewhere/runs"
    assert shown_path("s3://bucket/runs") == "s3://bucket/runs"


def test_the_accuracy_comes_first_with_its_interval_whatever_was_optimised() -> None:
    told = [started(7, 0.0, {"lr": 0.25}), reported(7, 1, val_loss=0.5, val_accuracy=0.75), ended(7, "completed")]
    settings_ = "(trial 00007, epoch 1: lr=0.25)"
    interval = "95 % interval 0.5313 to 0.8881 of 20 validation images"
    by_loss, by_accuracy = RunRecord("val_loss", "min", told), RunRecord("val_accuracy", "max", told)
    assert best_so_far(by_loss, 20) == f"val_accuracy 0.75, {interval}; val_loss 0.5 {settings_}"
    assert best_so_far(by_loss) == f"val_accuracy 0.75; val_loss 0.5 {settings_}"
    assert best_so_far(by_accuracy, 20) == f"val_accuracy 0.75, {interval} {settings_}"


@pytest.mark.parametrize(
    ("metric", "images", "text"),
    [
        ("val_map", 20, "val_map 0.875"),
        ("val_loss", 20, "val_map 0.875; val_loss 0.5"),
        (
            "val_subset_accuracy",
            20,
            "val_map 0.875; val_subset_accuracy 0.75, 95 % interval 0.5313 to 0.8881 of 20 validation images",
        ),
        ("val_subset_accuracy", None, "val_map 0.875; val_subset_accuracy 0.75"),
        ("accuracy", 20, "val_map 0.875; accuracy 0.25"),
    ],
)
def test_of_several_labels_the_mean_average_precision_comes_first(metric: str, images: int | None, text: str) -> None:
    metrics = {"val_map": 0.875, "val_loss": 0.5, "val_subset_accuracy": 0.75, "accuracy": 0.25}
    told = [started(7, 0.0, {"lr": 0.25}), reported(7, 1, **metrics), ended(7, "completed")]
    record = RunRecord(metric, "min" if metric == "val_loss" else "max", told)
    assert best_so_far(record, images) == f"{text} (trial 00007, epoch 1: lr=0.25)"
