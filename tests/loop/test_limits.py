from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loop.simulation import build, drive, events_of, parabola, study
from tuner import ASHA, Budget, HyperOpt, MultiFidelityGP, Study, StudyError
from tuner.history.records import RunRecord
from tuner.loop.limits import Limits
from tuner.loop.search_loop import SearchLoop
from tuner.study.budget import NAMES, ending


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


# The clock


class Clock:
    """Stands in for the module `time` of the limits."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tuner.loop.limits.time", clock)
    return clock


def started(study: Study) -> RunRecord:
    """A run in which one trial runs and says nothing."""
    start = {"event": "trial_started", "trial": "00000", "number": 0, "config": {"x": 0.5}, "seed": 0, "from_epoch": 0}
    events = [{"event": "study_started", "trials": 6, "time": 1_000_000.0}, {**start, "time": 1_000_000.0}]
    return RunRecord(study.metric, study.mode, events)


@pytest.mark.parametrize(("name", "devices"), [("hours", 1), ("device_hours", 1), ("device_hours", 4)])
def test_time_runs_out_while_nothing_is_reported(clock: Clock, name: str, devices: int) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=9, **{name: 2}))  # type: ignore[arg-type]
    limits = Limits(declared, started(declared), devices)
    clock.now += 2 * 3600 / devices - 1
    assert (limits.reached(), limits.overrun_seconds()) == (None, None)
    clock.now += 1.5
    assert limits.reached() == name
    clock.now += 30
    assert (limits.reached(), limits.overrun_seconds()) == (name, 30)


def test_asking_for_the_overrun_looks_at_the_clock_itself(clock: Clock) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=9, hours=1))
    limits = Limits(declared, started(declared), 1)
    clock.now += 4000
    assert limits.overrun_seconds() == 0
    clock.now += 5
    assert limits.overrun_seconds() == 5


def test_a_clock_that_steps_back_takes_no_device_hours_away(clock: Clock) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=9, device_hours=1))
    limits = Limits(declared, started(declared), 1)
    clock.now -= 10_000
    assert limits.reached() is None


def test_limits_that_are_not_set_cost_nothing_to_look_at(clock: Clock) -> None:
    """A look asks the record nothing that grows with the trials, unless a limit needs it or a trial has ended."""
    declared = study(budget=Budget(trials=6, max_epochs=9, hours=1))
    record = started(declared)
    limits = Limits(declared, record, 1)
    limits.reached()
    record.trials = None  # type: ignore[assignment]
    assert limits.reached() is None


# What is told of it


@pytest.mark.parametrize(
    ("budget", "reason", "sentence"),
    [
        ({"hours": 2.0}, "hours", "the limit of 2.0 hours was reached"),
        ({"hours": Budget(minutes=5).hours}, "hours", "the limit of 5 minutes was reached"),
        ({"device_hours": 1}, "device_hours", "the limit of 1 device hours was reached"),
        ({"total_epochs": 40}, "total_epochs", "the limit of 40 epochs was reached"),
        ({"target": 0.9}, "target", "loss reached the target of 0.9"),
        ({"min_improvement": 0.1}, "min_improvement", "no configuration was expected to improve loss by 0.1 or more"),
        ({"trials": 5}, "trials", "every trial was run"),
        ({}, "space", None),
    ],
)
def test_each_limit_says_that_it_ended_the_search(budget: dict[str, float], reason: str, sentence: str | None) -> None:
    assert ending(reason, budget, "loss") == sentence


def test_every_field_of_the_budget_but_the_length_of_a_trial_is_a_limit() -> None:
    assert ("max_epochs", *NAMES) == tuple(sorted(vars(Budget()), key=lambda name: name != "max_epochs"))


def test_what_a_run_has_spent_is_told_where_nothing_is_left_of_a_limit(tmp_path: Path) -> None:
    loop = searched(tmp_path, total_epochs=10)
    refusal = Limits(loop.study, loop.record, 1).refusal()
    assert refusal == (
        "--total-epochs counts the whole run and must be above the 10 that it has already used, got 10; "
        "use --total-epochs 20 for as much again"
    )


def test_time_that_was_spent_is_told_as_people_say_it(tmp_path: Path) -> None:
    loop = searched(tmp_path, total_epochs=10)
    short = study(budget=Budget(minutes=2))
    loop.record.active.ended[:] = [(0.0, 150.0)]
    refusal = Limits(short, loop.record, 1).refusal()
    assert refusal == (
        "--hours counts the whole run and must be above the 2.5 minutes that it has already used, got 2 minutes; "
        "use --hours 0.083 for as much again"
    )


def test_a_limit_that_there_is_not_is_refused_by_its_name() -> None:
    with pytest.raises(StudyError, match=r"^a search has no limit 'hour'; did you mean 'hours'\?$"):
        study().with_options(hour=2)


def test_numbers_of_numpy_are_taken_as_limits() -> None:
    assert Budget(trials=np.int64(3), hours=np.float32(0.5)) == Budget(trials=3, hours=0.5)  # type: ignore[arg-type]
