from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loop.simulation import build, drive, events_of, parabola, study
from tuner import ASHA, Budget, Failures, HyperOpt, MultiFidelityGP, Study, StudyError
from tuner.budget import NAMES, ending
from tuner.history.failures import all_failed_alike
from tuner.history.records import RunRecord
from tuner.loop.limits import Limits
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision


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


def fail_all(loop: SearchLoop, most: int, message: str = "ValueError: wrong at {trial}", cause: str = "error") -> None:
    for _ in range(most):
        start = loop.next_action()
        if start is None:
            return
        loop.failed(start.trial, cause, message.format(trial=ascii_word(start.trial)))


def ascii_word(trial: str) -> str:
    """A word of letters, another one for each trial: numbers count as alike."""
    return trial.translate(str.maketrans("0123456789", "abcdefghij"))


def test_a_search_whose_first_trials_all_fail_ends(tmp_path: Path) -> None:
    endless = study(budget=Budget(trials=None, max_epochs=9))
    loop = build(endless, tmp_path)
    fail_all(loop, 1000)
    assert (len(loop.record.trials), loop.finished, loop.end_reason) == (20, True, "failures")
    again = build(endless, tmp_path, history=events_of(tmp_path))
    fail_all(again, 1000)
    assert (len(again.record.trials), again.end_reason) == (40, "failures")  # whoever resumes it has changed something


def test_a_search_in_which_a_trial_has_reported_goes_on_where_each_fails_in_its_own_way(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=60, max_epochs=9)), tmp_path)
    drive(loop, reports=1)
    loop.failed("00000", "error", "ValueError: wrong")
    fail_all(loop, 1000)
    assert (len(loop.record.trials), loop.end_reason) == (60, "trials")


TRACEBACK = """Traceback (most recent call last):
  File "/tmp/{trial}/study.py", line {line}, in train
    tuner.report(loss=0.1)
ValueError: {trial} is wrong
"""


def drive_into_failures(loop: SearchLoop, failing: Callable[[int], bool], *, after: int = 1, most: int = 100) -> None:
    """Trials one by one, of `after` epochs each where the number is a failing one, else of all."""
    for _ in range(most):
        action = loop.next_action()
        if action is None:
            return
        number = int(action.trial)
        for epoch in range(1, (after if failing(number) else 9) + 1):
            loop.report(action.trial, epoch, {"loss": 1.0 / epoch}, saves=False)
        if failing(number):
            trace = TRACEBACK.format(trial=number, line=12)
            loop.failed(action.trial, "error", f"ValueError: {number} is wrong at 0x7f{number:06x}", trace)


def test_the_same_exception_in_trial_after_trial_ends_the_search_at_whatever_epoch(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path)
    drive_into_failures(loop, lambda number: True, after=2)
    assert (len(loop.record.trials), loop.finished, loop.end_reason) == (5, True, "failures")


def test_failures_after_trials_that_went_well_end_it_too(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path)
    drive_into_failures(loop, lambda number: number >= 3)
    assert (len(loop.record.trials), loop.end_reason) == (8, "failures")


def test_a_trial_in_between_that_goes_well_lets_the_search_go_on(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path)
    drive_into_failures(loop, lambda number: number % 5 != 4)
    assert (len(loop.record.trials), loop.end_reason) == (30, "trials")


def test_a_part_of_the_space_that_fails_ends_no_search(tmp_path: Path) -> None:
    """Two of five trials fail, and five in a row do so in between by chance."""
    loop = build(study(budget=Budget(trials=60, max_epochs=9)), tmp_path)
    drive_into_failures(loop, lambda number: number % 5 < 2 or 30 <= number < 35)
    assert (len(loop.record.trials), loop.end_reason) == (60, "trials")


def test_a_long_row_of_failures_ends_it_after_all(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=60, max_epochs=9)), tmp_path)
    drive_into_failures(loop, lambda number: number % 5 < 2 or number >= 30)
    assert (len(loop.record.trials), loop.end_reason) == (43, "failures")  # 13 in a row


def test_a_misspelt_metric_ends_the_search(tmp_path: Path) -> None:
    loop = build(study(metric="los", budget=Budget(trials=30, max_epochs=9)), tmp_path)
    drive(loop)
    assert (len(loop.record.trials), loop.end_reason) == (5, "failures")


@pytest.mark.parametrize("cause", ["diverged", "out_of_memory", "lost"])
def test_what_a_configuration_brings_about_ends_no_search(tmp_path: Path, cause: str) -> None:
    loop = build(study(budget=Budget(trials=60, max_epochs=9)), tmp_path)
    drive(loop, reports=1)
    loop.failed("00000", cause, "nan")
    fail_all(loop, 1000, "nan", cause)
    assert (len(loop.record.trials), loop.end_reason) == (60, "trials")


def test_another_line_of_the_code_is_another_failure(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=12, max_epochs=9)), tmp_path)
    drive(loop, reports=1)
    loop.failed("00000", "error", "ValueError: wrong")
    for number in range(1, 12):
        action = loop.next_action()
        assert action is not None
        trace = TRACEBACK.format(trial=number, line=10 + number % 3)
        loop.failed(action.trial, "error", "ValueError: wrong", trace)
    assert loop.end_reason == "trials"


def test_two_errors_in_turn_are_two_rows(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path)
    for number in range(9):
        action = loop.next_action()
        assert action is not None
        trace = TRACEBACK.format(trial=number, line=10 + number % 2)
        loop.failed(action.trial, "error", "ValueError: wrong", trace)
    assert (loop.next_action(), loop.end_reason) == (None, "failures")
    assert [trial.message for trial in loop.record.ended_trials] == ["ValueError: wrong"] * 9


@pytest.mark.parametrize(("alike", "trials"), [(1, 1), (3, 3), (None, 30)])
def test_the_study_says_how_many_failures_alike_end_it(tmp_path: Path, alike: int | None, trials: int) -> None:
    declared = study(failures=Failures(alike=alike), budget=Budget(trials=30, max_epochs=9))
    loop = build(declared, tmp_path)
    drive_into_failures(loop, lambda number: True, after=0)
    assert (len(loop.record.trials), loop.end_reason) == (trials, "trials" if alike is None else "failures")


def test_a_trial_counts_once_it_has_failed_for_good(tmp_path: Path) -> None:
    loop = build(study(failures=Failures(error=2), budget=Budget(trials=30, max_epochs=9)), tmp_path)
    tries = 0
    while (action := loop.next_action()) is not None:
        loop.failed(action.trial, "error", "ValueError: wrong")
        tries += 1
    assert (len(loop.record.trials), tries, loop.end_reason) == (5, 15, "failures")


@pytest.mark.parametrize("rule", ["stop", "promote"])
def test_trials_stopped_early_before_where_the_others_fail_say_nothing(tmp_path: Path, rule: str) -> None:
    scheduler = ASHA(2, 2, rule=rule)  # type: ignore[arg-type]
    loop = build(study(scheduler=scheduler, budget=Budget(trials=60, max_epochs=9)), tmp_path)
    while (action := loop.next_action()) is not None:
        for epoch in range(loop.record.trials[action.trial].epoch + 1, 10):
            if epoch == 4:
                loop.failed(action.trial, "error", "ValueError: wrong")
                break
            saved = [epoch] if rule == "promote" else []
            if loop.report(action.trial, epoch, {"loss": action.config["x"]}, saved=saved) is not Decision.CONTINUE:
                break
    assert (loop.end_reason, loop.record.failures()) == ("failures", {"error": 5})
    assert len(loop.record.trials) > 5


def test_trials_that_run_beyond_where_others_fail_let_the_search_go_on(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path, concurrency=2)
    going_well = loop.next_action()
    assert going_well is not None
    for epoch in range(1, 9):
        action = loop.next_action()
        assert action is not None
        loop.failed(action.trial, "error", "ValueError: wrong")
        loop.report(going_well.trial, epoch, {"loss": 1.0}, saves=False)
    assert not loop.finished


def test_a_trial_that_hangs_beside_them_saves_no_search_in_which_all_others_fail(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path, concurrency=2)
    hanging = loop.next_action()
    assert hanging is not None
    loop.report(hanging.trial, 1, {"loss": 1.0}, saves=False)
    fail_all(loop, 100, "ValueError: wrong")
    assert (len(loop.record.trials), loop.end_reason) == (18, "failures")  # until it can be no coincidence


def test_whoever_resumes_after_alike_failures_has_changed_something(tmp_path: Path) -> None:
    declared = study(budget=Budget(trials=30, max_epochs=9))
    drive_into_failures(build(declared, tmp_path), lambda number: True)
    again = build(declared, tmp_path, history=events_of(tmp_path))
    drive_into_failures(again, lambda number: True, most=4)
    assert not again.finished
    drive_into_failures(again, lambda number: True)
    assert (len(again.record.trials), again.end_reason) == (10, "failures")


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


def test_failures_alike_are_told_with_the_exception_and_how_many(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path)
    drive_into_failures(loop, lambda number: True)
    assert all_failed_alike(loop.record.ended_trials, 5) == (
        "5 trials failed with the same error and none got farther: ValueError: 4 is wrong at 0x7f000004 (study.py:12)"
    )


def test_what_a_run_has_spent_is_told_where_nothing_is_left_of_a_limit(tmp_path: Path) -> None:
    loop = searched(tmp_path, total_epochs=10)
    refusal = Limits(loop.study, loop.record, 1).refusal()
    assert refusal == (
        "--total-epochs counts the whole run and must be above the 10 that it has already used, got 10; "
        "use --total-epochs with another value"
    )


def test_a_limit_that_there_is_not_is_refused_by_its_name() -> None:
    with pytest.raises(StudyError, match=r"^a search has no limit 'hour'; did you mean 'hours'\?$"):
        study().with_options(hour=2)


def test_numbers_of_numpy_are_taken_as_limits() -> None:
    assert Budget(trials=np.int64(3), hours=np.float32(0.5)) == Budget(trials=3, hours=0.5)  # type: ignore[arg-type]
