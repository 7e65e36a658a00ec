"""Failures that are alike, and whether all trials to come would fail."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tuner.history.records import RunRecord, TrialRecord
from tuner.history.similar_failures import all_failed_alike, fails_always, failure_groups, place_of

WORKER = """Traceback (most recent call last):
  File "/opt/code/tuner/worker/trainable.py", line 70, in perform
    implementation_of(trial).train(trial, assignment, worker)
  File "/opt/code/tuner/worker/function.py", line 20, in train
    trial.function(assignment.config)
"""
MINE = """  File "/home/me/digits/{file}", line {line}, in train
    deep()
"""
LIBRARY = """  File "/usr/lib/python3.11/pathlib.py", line 1044, in open
    return io.open(self)
  File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _call_impl
    return forward_call(*args)
"""


def raised(line: int = 12, file: str = "study.py") -> str:
    return WORKER + MINE.format(file=file, line=line) + LIBRARY + "ValueError: wrong\n"


def trial(number: int, *, ended: float | None = None, seconds: float = 1.0, **fields: Any) -> TrialRecord:
    """One that failed, or with a status of its own; one that runs since `ended` - `seconds` where that is None."""
    settings = {"status": "failed", "cause": "error", "message": "ValueError: wrong", "traceback": raised(), **fields}
    record = TrialRecord(f"{number:05d}", number, {}, 0, 0.0, running_seconds=seconds, ended=ended)
    for name, value in settings.items():
        setattr(record, name, value)
    return record


def running(number: int, since: float) -> TrialRecord:
    return trial(number, status="running", cause=None, message=None, traceback=None, running_since=since)


def well(number: int, ended: float, **fields: Any) -> TrialRecord:
    return trial(number, ended=ended, **{"status": "completed", "cause": None, **fields})


# Where


def test_an_exceptions_place_is_the_last_frame_of_the_users_code() -> None:
    assert place_of(raised()) == "study.py:12"
    cause = (
        raised(40, "data.py") + "\nThe above exception was the direct cause of the following exception:\n\n" + raised()
    )
    assert place_of(cause) == "study.py:12"


def test_without_a_frame_of_theirs_it_is_the_last_of_all() -> None:
    assert place_of(WORKER + LIBRARY) == "module.py:1773"
    assert place_of("") == ""


def test_a_folder_that_begins_like_tuners_is_the_users() -> None:
    assert place_of(WORKER + '  File "/opt/code/tuner-of-mine/study.py", line 3, in train\n' + LIBRARY) == "study.py:3"


# What belongs together


def test_different_exceptions_of_one_cause_are_told_apart_by_what_they_say_and_where() -> None:
    record = RunRecord("loss", "min")
    said = [
        "KeyError: 'lr'",
        "FileNotFoundError: no /data/a/1.png",
        "KeyError: 'lr'",
        "FileNotFoundError: no /data/b/2.png",
    ]
    for number, message in enumerate([*said, "KeyError: 'lr'"]):
        record.trials[f"{number:05d}"] = trial(number, message=message, traceback=raised(30 if number == 4 else 12))
    record.trials["00005"] = trial(5, cause="diverged", message="loss = nan", traceback=None)
    assert [(group.described, [each.number for each in group.trials]) for group in failure_groups(record)] == [
        ("KeyError: 'lr' (study.py:12)", [0, 2]),
        ("FileNotFoundError: no /data/a/1.png (study.py:12)", [1, 3]),
        ("KeyError: 'lr' (study.py:30)", [4]),
        ("diverged: loss = nan", [5]),
    ]
    assert [group.name for group in failure_groups(record)][2:] == ["error: KeyError: 'lr' (study.py:30)", "diverged"]


@pytest.mark.parametrize("part", ["a", "a.", "1a", "a1_", "a/ ", "1,", "-", "~/a ", "0x", "C:", " ", "\n", "\\"])
def test_the_cause_of_a_message_of_a_megabyte_is_found_at_once(part: str) -> None:
    record = RunRecord("loss", "min")
    message = f"ValueError: {part * (1_000_000 // len(part))}"
    record.trials["00000"] = trial(0, message=message, traceback=f"{raised()}{message}")
    begun = time.process_time()
    assert failure_groups(record)[0].place == "study.py:12"
    assert time.process_time() - begun < 3


@pytest.mark.parametrize(
    "said",
    [
        ("no 2026-11-01/a/b.png", "no 2025-01-30/a/c.png"),
        ("in C:\\data\\1.png", "in D:\\other\\2.png"),
        ("at 0x7f00aa, 1.5e-3 of +2", "at 0x12, 7 of -3.25"),
        ("block3.conv1", "block12.conv2"),
        ("x=/tmp/a/b", "x=../other/c"),
    ],
)
def test_numbers_addresses_and_paths_make_no_other_failure(said: tuple[str, str]) -> None:
    record = RunRecord("loss", "min")
    record.trials = {f"{number:05d}": trial(number, message=message) for number, message in enumerate(said)}
    assert len(failure_groups(record)) == 1


# Whether all will fail


def test_five_alike_are_enough_and_four_are_not() -> None:
    ended = [trial(number, ended=float(number)) for number in range(5)]
    assert not fails_always(ended[:4], 5)
    assert fails_always(ended, 5)
    assert all_failed_alike(ended, 5) == (
        "5 trials failed with the same error and none got farther: ValueError: wrong (study.py:12)"
    )
    assert all_failed_alike(ended[:4], 5) is None
    assert all_failed_alike(ended[:1], 1) == "a trial failed: ValueError: wrong (study.py:12)"


def test_other_failures_in_between_don_t_matter_and_a_trial_that_went_well_does() -> None:
    others = [trial(9, ended=2.5, cause="diverged"), trial(8, ended=2.6, message="KeyError: 'lr'")]
    ended = [trial(number, ended=float(number)) for number in range(5)]
    assert fails_always([*ended[:3], *others, *ended[3:]], 5)
    assert not fails_always([*ended[:3], well(9, 2.5), *ended[3:]], 5)


@pytest.mark.parametrize(("epochs", "always"), [(2, True), (3, False)])
def test_a_trial_stopped_early_went_well_if_it_got_farther(epochs: int, always: bool) -> None:
    ended = [with_epochs(trial(number, ended=float(number)), 2) for number in range(5)]
    stopped = with_epochs(well(9, 2.5, status="stopped"), epochs)
    assert fails_always([*ended[:3], stopped, *ended[3:]], 5) is always


def with_epochs(record: TrialRecord, count: int) -> TrialRecord:
    from tuner.history.records import EpochRecord

    record.epochs = {epoch: EpochRecord(epoch, {}, "continue", 0.0) for epoch in range(1, count + 1)}
    return record


def test_of_three_workers_two_with_trials_that_may_go_well_the_failures_of_the_third_end_nothing() -> None:
    """Two trials of an hour each run, and a kind that fails within a second comes again and again."""
    ended = [trial(number, ended=100.0 + number, seconds=1.0) for number in range(12)]
    slow = [running(20, since=50.0), running(21, since=60.0)]
    assert not fails_always(ended, 5, slow, now=120.0)
    assert fails_always([*ended, trial(12, ended=113.0)], 5, slow, now=120.0)  # 13 in a row are no coincidence


def test_trials_that_have_run_no_longer_than_the_others_took_say_nothing() -> None:
    ended = [trial(number, ended=float(number), seconds=10.0) for number in range(5)]
    assert fails_always(ended, 5, [running(20, since=95.0)], now=104.0)
    assert not fails_always(ended, 5, [running(20, since=90.0)], now=104.0)


def test_a_trial_that_ran_again_counts_by_its_last_end_and_not_while_it_runs() -> None:
    ended = [trial(number, ended=float(number)) for number in range(5)]
    assert fails_always([ended[0], *ended], 5)
    assert not fails_always([ended[0], *ended[:4]], 5)
    ended[0].status = "running"
    assert not fails_always(ended, 5)
