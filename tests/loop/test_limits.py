from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of, parabola, study
from tuner import ASHA, Budget, HyperOpt, MultiFidelityGP
from tuner.loop.search_loop import SearchLoop


def searched(folder: Path, *, devices: float = 1, **limits: Any) -> SearchLoop:
    declared = study(budget=Budget(**{"trials": 6, "max_epochs": 9, **limits}), scheduler=ASHA(grace_epochs=3))
    loop = build(declared, folder, devices=devices)
    drive(loop)
    return loop


def test_total_epochs_end_the_search_at_that_very_epoch(tmp_path: Path) -> None:
    loop = searched(tmp_path, total_epochs=10)
    assert loop.record.epochs() == 10
    assert (loop.end_reason, loop.record.counts()["paused"], loop.record.counts()["running"]) == ("total_epochs", 0, 0)


def test_epochs_trained_again_after_an_interruption_count_once(tmp_path: Path) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=9, total_epochs=15))
    drive(build(declared, tmp_path), reports=13, saves=False)
    loop = build(declared, tmp_path, history=events_of(tmp_path))
    drive(loop)
    assert loop.record.epochs() == 15
    reported = [event for event in events_of(tmp_path) if event["event"] == "epoch_reported"]
    assert len(reported) == 15 + 4


@pytest.mark.parametrize("target", [0.4, 0.1201])
def test_a_target_ends_the_search_as_soon_as_a_trial_has_reached_it(tmp_path: Path, target: float) -> None:
    loop = searched(tmp_path, target=target)
    values = [event["metrics"]["loss"] for event in events_of(tmp_path) if event["event"] == "epoch_reported"]
    assert [value <= target for value in values] == [False] * (len(values) - 1) + [True]
    assert loop.end_reason == "target"


def test_a_target_that_is_not_reached_ends_nothing(tmp_path: Path) -> None:
    assert searched(tmp_path, target=1e-9).end_reason == "trials"


def test_a_target_is_compared_in_the_sense_of_the_metric(tmp_path: Path) -> None:
    upwards = study(mode="max", budget=Budget(trials=6, max_epochs=9, target=0.9))
    loop = build(upwards, tmp_path)
    drive(loop, lambda config, epoch: epoch / 10)
    assert (loop.record.epochs(), loop.end_reason) == (9, "target")


@pytest.mark.parametrize("devices", [1, 4])
def test_device_hours_count_every_device_of_every_running_trial(tmp_path: Path, devices: float) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=9, device_hours=1))
    start = {"event": "trial_started", "trial": "00000", "number": 0, "config": {"x": 0.5}, "seed": 0, "from_epoch": 0}
    report = {"event": "epoch_reported", "trial": "00000", "epoch": 1, "metrics": {"loss": 1.0}, "decision": "continue"}
    history = [
        {"event": "study_started", "trials": 6, "time": 0.0},
        {**start, "time": 0.0},
        {**report, "time": 1000.0},
        {"event": "study_interrupted", "time": 1000.0},
    ]
    loop = build(declared, tmp_path, devices=devices, history=history)
    assert (loop.next_action() is None) == (devices == 4)
    assert (loop.end_reason == "device_hours") == (devices == 4)


def test_the_search_ends_where_no_improvement_is_expected(tmp_path: Path) -> None:
    budget = Budget(trials=60, max_epochs=9, min_improvement=0.01)
    loop = build(study(search=MultiFidelityGP(), budget=budget), tmp_path)
    drive(loop)
    assert loop.end_reason == "min_improvement"
    assert 4 < len(loop.record.trials) < 30
    best = loop.record.best_value
    assert best is not None
    assert best < 1 / 9 + 0.01
    assert all(not trial.live for trial in loop.record.trials.values())


def test_starting_points_are_tried_however_little_is_expected_of_them(tmp_path: Path) -> None:
    points = [{"x": 0.9 + i / 100} for i in range(8)]
    budget = Budget(trials=60, max_epochs=9, min_improvement=1e9)
    loop = build(study(search=MultiFidelityGP(), budget=budget, start_from=points), tmp_path)
    drive(loop)
    assert [trial.config for trial in loop.record.trials.values()] == points


def test_a_search_that_ended_for_want_of_improvement_ends_again_when_resumed(tmp_path: Path) -> None:
    declared = study(search=MultiFidelityGP(), budget=Budget(trials=60, max_epochs=9, min_improvement=0.01))
    drive(build(declared, tmp_path))
    again = build(declared, tmp_path, history=events_of(tmp_path))
    trials = len(again.record.trials)
    drive(again)
    assert (len(again.record.trials), again.end_reason) == (trials, "min_improvement")


def test_the_expected_improvement_is_in_units_of_the_metric(tmp_path: Path) -> None:
    ends = []
    for scale in (1, 1000):
        budget = Budget(trials=60, max_epochs=9, min_improvement=0.01 * scale)
        loop = build(study(search=MultiFidelityGP(), budget=budget), tmp_path / str(scale))
        drive(loop, lambda config, epoch, scale=scale: scale * parabola(config, epoch))  # type: ignore[misc]
        ends.append(len(loop.record.trials))
    assert ends[0] == ends[1]


def test_hyperopt_expects_nothing(tmp_path: Path) -> None:
    loop = build(study(search=HyperOpt()), tmp_path)
    drive(loop)
    assert loop._proposals.expected_improvement(6) is None


def fail_all(loop: SearchLoop, most: int) -> None:
    for _ in range(most):
        start = loop.next_action()
        if start is None:
            return
        loop.failed(start.trial, "error", "ValueError: wrong")


def test_a_search_whose_first_trials_all_fail_ends(tmp_path: Path) -> None:
    endless = study(budget=Budget(trials=None, max_epochs=9))
    loop = build(endless, tmp_path)
    fail_all(loop, 1000)
    assert (len(loop.record.trials), loop.finished, loop.end_reason) == (20, True, "failures")
    again = build(endless, tmp_path, history=events_of(tmp_path))
    fail_all(again, 1000)
    assert (len(again.record.trials), again.end_reason) == (40, "failures")  # whoever resumes it has changed something


def test_a_search_in_which_a_trial_has_reported_goes_on_whatever_fails(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=60, max_epochs=9)), tmp_path)
    drive(loop, reports=1)
    loop.failed("00000", "error", "ValueError: wrong")
    fail_all(loop, 1000)
    assert (len(loop.record.trials), loop.end_reason) == (60, "trials")
