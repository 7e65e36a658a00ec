import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.results.simulated import simulated
from tuner import Budget, NoEarlyStopping, Run, loguniform, uniform
from tuner.history.run_info import write_info
from tuner.results import findings
from tuner.results.findings import findings_of


def with_accuracies(folder: Path, best: list[float], *, images: int | None = 1000, **changes: Any) -> Run:
    """A run whose trial N reached `best[N]`, with as many validation images."""
    place = iter(best)
    reached: dict[float, float] = {}

    def curve(config: dict[str, Any], epoch: int) -> float:
        if config["lr"] not in reached:
            reached[config["lr"]] = next(place)
        return reached[config["lr"]] - 0.1 / epoch + 0.1 / 2

    return of_accuracies(folder, curve, Budget(trials=len(best), max_epochs=2), images, **changes)


def of_accuracies(
    folder: Path, curve: Callable[[dict[str, Any], int], float], budget: Budget, images: int | None, **changes: Any
) -> Run:
    run = simulated(
        folder,
        curve=curve,
        space={"lr": uniform(0, 1)},
        scheduler=NoEarlyStopping(),
        budget=budget,
        mode="max",
        **changes,
    )
    run.info |= {"metric": "val_accuracy"}
    run.folder.write("best/metrics.json", json.dumps({"images": {"validation": images} if images else {}}).encode())
    events = run.folder.read("events/000001.jsonl").replace(b'"loss"', b'"val_accuracy"')
    run.folder.write("events/000001.jsonl", re.sub(rb',"sum":"[0-9a-f]+"', b"", events))
    write_info(run.folder, run.info)
    return Run(run.folder)


def test_a_lead_within_the_noise_of_the_validation_set_is_none(tmp_path: Path) -> None:
    found = findings.certainty(with_accuracies(tmp_path, [0.90, 0.91, 0.905, 0.5]))
    assert found is not None
    assert found.value == pytest.approx(0.91)
    assert (found.first, found.last) == (2, 2)
    assert found.runner_up.trial == "00002"
    assert found.difference == pytest.approx(0.005)
    assert found.error == pytest.approx(math.sqrt(0.91 * 0.09 / 1000), rel=0.05)
    assert not found.clear
    assert found.equals == ("00002", "00000")


def test_a_trial_that_was_ahead_before_its_end_may_be_as_good(tmp_path: Path) -> None:
    values = iter([*[0.6] * 8, 0.95, *[0.3] * 4])
    budget = Budget(trials=2, max_epochs=8)
    run = of_accuracies(tmp_path, lambda config, epoch: next(values), budget, 1000, reports=13)
    found = findings.certainty(run)
    assert found is not None
    assert (run.best and run.best.trial, found.runner_up.trial) == ("00000", "00001")
    assert found.difference < -0.2
    assert not found.clear
    assert found.equals == ("00001",)


def test_a_lead_beyond_the_noise_is_clear(tmp_path: Path) -> None:
    found = findings.certainty(with_accuracies(tmp_path, [0.80, 0.95, 0.90]))
    assert found is not None
    assert found.clear
    assert found.equals == ()


@pytest.mark.parametrize(("best", "images"), [([0.9, 0.8], None), ([0.9], 1000)])
def test_without_a_runner_up_or_a_known_number_of_images_nothing_is_claimed(
    tmp_path: Path, best: list[float], images: int | None
) -> None:
    assert findings.certainty(with_accuracies(tmp_path, best, images=images)) is None


def test_another_metric_than_a_share_of_images_has_no_known_noise(tmp_path: Path) -> None:
    assert findings.certainty(simulated(tmp_path)) is None


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_right_or_all_wrong_is_not_certain_either(share: float) -> None:
    assert 0 < findings.share_error(share, 100) < 0.05


def test_failures_are_counted_by_cause(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    (found,) = findings_of(run).failures
    assert found.cause == "diverged"
    assert found.trials == tuple(t for t in run.record.trials.values() if t.status == "failed")
    assert found.first is found.trials[0]


def texts(run: Run) -> str:
    return "\n".join(f"{one.text} {one.command or ''}" for one in findings_of(run).advice)


def test_a_best_value_at_the_border_of_its_range_is_told(tmp_path: Path) -> None:
    run = simulated(tmp_path, space={"lr": loguniform(1e-4, 1e-1)}, curve=lambda config, epoch: -config["lr"] / epoch)
    assert "of lr, 0.0" in texts(run)
    assert "lies at the border of loguniform(0.0001, 0.1)" in texts(run)


def test_a_best_value_in_the_middle_is_not_told_as_one_at_the_border(tmp_path: Path) -> None:
    run = simulated(tmp_path, space={"lr": uniform(0, 1)}, curve=lambda config, epoch: abs(config["lr"] - 0.5) / epoch)
    assert "border" not in texts(run)


def test_what_hardly_matters_can_be_fixed(tmp_path: Path) -> None:
    space = {"lr": uniform(0, 1), "idle": uniform(0, 1)}
    run = simulated(
        tmp_path,
        space=space,
        scheduler=NoEarlyStopping(),
        budget=Budget(trials=60, max_epochs=3),
        curve=lambda config, epoch: config["lr"] / epoch,
    )
    assert "can be fixed: idle=" in texts(run)


def test_a_winner_best_at_its_last_epoch_and_many_failures_are_told(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    first = findings_of(run).failures[0].first.trial
    assert "trials longer than max_epochs=9" in texts(run)
    assert f"python -m tuner show {run.path} --trial {first}" in texts(run)


def test_a_winner_that_was_best_before_its_last_epoch_is_not_told_to_train_longer(tmp_path: Path) -> None:
    reached = [0.9, 0.95, 0.95, 0.96, 0.94]  # epoch 5 stands for the trial, epoch 4 was its best
    run = simulated(
        tmp_path,
        space={"lr": uniform(0, 1)},
        scheduler=NoEarlyStopping(),
        budget=Budget(trials=3, max_epochs=5),
        curve=lambda config, epoch: reached[epoch - 1] - config["lr"] / 100,
        mode="max",
    )
    write_info(run.folder, {**run.info, "budget": {"max_epochs": 5}})
    run = Run(run.folder)
    assert run.best_epoch == 5
    assert "trials longer than" not in texts(run)


def test_a_traceback_is_promised_only_where_there_is_one(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    assert "diverged: loss = nan); see the first: python -m tuner show" in texts(run)
    events = run.folder.read("events/000001.jsonl").replace(
        b'"cause":"diverged"', b'"cause":"error","traceback":"Traceback (most recent call last)"'
    )
    run.folder.write("events/000001.jsonl", re.sub(rb',"sum":"[0-9a-f]+"', b"", events))
    assert "; see the first with its traceback: python -m tuner show" in texts(Run(run.folder))


def test_trials_that_are_as_good_as_the_winner_are_told(tmp_path: Path) -> None:
    assert "2 other trials may be as good" in texts(with_accuracies(tmp_path, [0.90, 0.91, 0.905, 0.5]))


def test_a_search_that_was_still_improving_can_go_on_with_a_command(tmp_path: Path) -> None:
    values = iter(range(100, 0, -1))
    run = simulated(
        tmp_path,
        space={"lr": uniform(0, 1)},
        scheduler=NoEarlyStopping(),
        budget=Budget(trials=24, max_epochs=1),
        curve=lambda config, epoch: float(next(values)),
    )
    for ended, limits, options in (
        ({}, {}, "--trials 36"),
        ({"end_reason": "trials"}, {}, "--trials 36"),
        ({"end_reason": "total_epochs"}, {"total_epochs": 24}, "--total-epochs 36"),
        ({"end_reason": "hours"}, {"hours": 0.5}, "--hours 0.75"),
    ):
        budget = {**run.budget, **limits}
        write_info(run.folder, {**run.info, **ended, "study_file": "space.py", "budget": budget})
        assert f"python -m tuner resume {run.path} {options}" in texts(Run(run.folder))
    write_info(run.folder, {**run.info, "study_file": "space.py", "end_reason": "target"})
    assert "still improving" not in texts(Run(run.folder))


@pytest.mark.parametrize(
    ("file", "to_go_on"), [("space.py", "python -m tuner resume {}"), (None, "tuner.resume('{}', study=study)")]
)
def test_an_interrupted_run_is_told_to_go_on(tmp_path: Path, file: str | None, to_go_on: str) -> None:
    run = simulated(tmp_path, reports=5)
    write_info(run.folder, {**run.info, "status": "interrupted", "study_file": file})
    (first, *_) = findings_of(Run(run.folder)).advice
    assert first.command == to_go_on.format(run.path)


@pytest.mark.parametrize("reports", [0, 1])
def test_a_run_that_has_hardly_begun_gets_no_advice_on_its_space(tmp_path: Path, reports: int) -> None:
    assert "border" not in texts(simulated(tmp_path, reports=reports))
