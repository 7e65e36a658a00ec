"""Failures that are alike end a search, and those of a part of the space don't."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tuner import ASHA, Budget, Failures
from tuner.history.similar_failures import all_failed_alike
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision


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
    drive(loop, metric="loss")
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


def test_failures_alike_are_told_with_the_exception_and_how_many(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=30, max_epochs=9)), tmp_path)
    drive_into_failures(loop, lambda number: True)
    assert all_failed_alike(loop.record.ended_trials, 5) == (
        "5 trials failed with the same error and none got farther: ValueError: 4 is wrong at 0x7f000004 (study.py:12)"
    )
    beside = replace(loop.record.ended_trials[-1], trial="00005", message="OSError: another error")
    assert all_failed_alike([*loop.record.ended_trials, beside], 5) == all_failed_alike(loop.record.ended_trials, 5)
