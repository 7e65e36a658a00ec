"""What is told of a trial: in order, twice, by those who have it no more, and what can't be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ask_tell.asked import PROMOTING, epoch_of, study, train
from tests.loop.simulation import events_of
from tuner import Budget, Failures, ReportError, Search
from tuner.ask_tell import AskedTrial
from tuner.errors import TrialOutOfMemory
from tuner.history.checkpoints import CheckpointStore
from tuner.history.logs import log_text


@pytest.fixture
def search(tmp_path: Path) -> Iterator[Search]:
    declared = study(budget=Budget(trials=9, max_epochs=9), failures=Failures(error=1))
    with Search(declared, storage=tmp_path / "runs") as search:
        yield search


@pytest.fixture
def trial(search: Search) -> AskedTrial:
    trial = search.ask()
    assert trial is not None
    return trial


def reports(search: Search) -> list[tuple[str, int]]:
    found = events_of(Path(search.run.path))
    return [(event["trial"], event["epoch"]) for event in found if event["event"] == "epoch_reported"]


@pytest.mark.parametrize(
    ("epoch", "value", "message"),
    [
        (0, 0.5, r"^an epoch is a whole number of at least 1, got 0; count epochs from 1$"),
        (True, 0.5, r"^an epoch is a whole number of at least 1, got True"),
        (1.0, 0.5, r"^an epoch is a whole number of at least 1, got 1.0"),
        (
            4,
            0.5,
            r"^each epoch is reported once and in order, got epoch 4 of trial 00000 after epoch 2; report epoch 3",
        ),
        (
            2,
            0.7,
            r"^each epoch is reported once and in order, got epoch 2 of trial 00000 after epoch 2; report epoch 3",
        ),
        (3, {"accuracy": 0.5}, r"^a report needs the study's metric 'loss', got accuracy; report it, or change"),
        (3, {}, r"^a report needs the study's metric 'loss', got nothing"),
        (3, "good", r"^the study's metric needs a number, got loss='good'; report a float$"),
        (3, None, r"^the study's metric needs a number, got loss=None"),
        (3, True, r"^the study's metric needs a number, got loss=True; report a float$"),
        (3, np.bool_(True), r"^the study's metric needs a number, got loss=(np\.)?True(_)?; report a float$"),
        (3, np.ones(2), r"^the study's metric needs a number, got loss=array"),
        (3, {"loss": 0.5, 1: 2}, r"^metrics have names, got \{'loss': 0.5, 1: 2\}"),
    ],
)
def test_what_cannot_be_is_refused_and_not_recorded(
    search: Search, trial: AskedTrial, epoch: Any, value: Any, message: str
) -> None:
    search.report(trial, 1, 0.5)
    search.report(trial, 2, 0.4)
    with pytest.raises(ReportError, match=message):
        search.report(trial, epoch, value)
    assert reports(search) == [("00000", 1), ("00000", 2)]
    assert search.report(trial, 3, 0.3) == "continue"


@pytest.mark.parametrize("unknown", ["00009", "", "../00000", 0, None])
def test_an_unknown_trial_is_refused(search: Search, trial: AskedTrial, unknown: Any) -> None:
    for tell in (lambda: search.report(unknown, 1, 0.5), lambda: search.tell(unknown), lambda: search.lost(unknown)):
        with pytest.raises(ReportError, match=r"^a trial is (named by its id|what ask\(\) gave, or its id), got "):
            tell()


def test_a_checkpoint_that_is_no_folder_is_refused(search: Search, trial: AskedTrial, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"^a checkpoint is a folder, got '.*nowhere'; write its files into one$"):
        search.report(trial, 1, 0.5, checkpoint=tmp_path / "nowhere")
    assert reports(search) == []


def test_a_checkpoint_has_what_was_reported_with_it(search: Search, trial: AskedTrial, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    search.report(trial, 1, {"loss": np.float32(0.5), "images": 3}, checkpoint=tmp_path / "saved")
    assert CheckpointStore(search.run.folder).reports(trial.id, 1) == {1: {"loss": 0.5, "images": 3}}


def test_events_that_somebody_empties_are_written_again_while_nothing_is_reported(
    search: Search, trial: AskedTrial
) -> None:
    search.report(trial, 1, 0.5)
    segment = Path(search.run.path) / "events/000001.jsonl"
    whole, until = segment.read_bytes(), time.monotonic() + 60
    segment.write_bytes(b"")
    while not segment.read_bytes().startswith(whole) and time.monotonic() < until:
        time.sleep(0.05)
    assert reports(search) == [(trial.id, 1)]


def test_numbers_of_numpy_and_ids_are_taken(search: Search, trial: AskedTrial) -> None:
    assert search.report(trial.id, np.int64(1), np.float32(0.5)) == "continue"  # type: ignore[arg-type]
    assert search.run.record.trials[trial.id].epochs[1].metrics == {"loss": 0.5}


def test_the_same_report_again_gets_the_same_answer_and_is_recorded_once(tmp_path: Path) -> None:
    declared = study(scheduler=PROMOTING, budget=Budget(trials=9, max_epochs=9))
    with Search(declared, storage=tmp_path / "runs") as search:
        first, second = search.ask(), search.ask()
        assert first is not None
        assert second is not None
        assert epoch_of(search, first, 1, tmp_path / "saved") == "pause"
        assert epoch_of(search, first, 1, tmp_path / "saved") == "pause"
        assert search.report(first.id, 1, search.run.record.trials[first.id].epochs[1].metrics) == "pause"
        assert reports(search) == [(first.id, 1)]


def test_a_trial_that_diverges_ends(search: Search, trial: AskedTrial) -> None:
    assert search.report(trial, 1, float("nan")) == "stop"
    assert search.report(trial, 1, float("nan")) == "stop"
    record = search.run.record.trials[trial.id]
    assert (record.status, record.cause) == ("failed", "diverged")


def test_reports_after_the_end_are_refused_where_the_end_was_told(search: Search, trial: AskedTrial) -> None:
    assert train(search, trial) == "stop"
    with pytest.raises(ReportError, match=r"got epoch 10 of trial 00000, which is completed; ask for the next trial$"):
        search.report(trial, 10, 0.5)
    search.tell(trial)
    search.lost(trial)
    assert search.run.record.trials[trial.id].status == "completed"


def test_a_trial_needs_a_report_before_it_ends_well(search: Search, trial: AskedTrial) -> None:
    with pytest.raises(ReportError, match=r"^a trial can be completed after its first report, got none of trial 00000"):
        search.tell(trial)
    with pytest.raises(ReportError, match=r"^a trial has a value or an error, got value=1.0 and error"):
        search.tell(trial, 1.0, error="broken")
    with pytest.raises(ReportError, match=r"^the cause of a failure is one of .*, got 'rain'; use search.lost"):
        search.tell(trial, error="broken", cause="rain")
    assert search.run.record.trials[trial.id].status == "running"


def test_a_failed_trial_is_tried_again_as_the_study_says(search: Search, trial: AskedTrial) -> None:
    epoch_of(search, trial, 1)
    search.tell(trial, error="the oven was off")
    search.tell(trial, error="the oven was off")  # the same again: it is out no more
    again = search.ask()
    assert again is not None
    assert (again.id, again.attempt, again.from_epoch) == (trial.id, 2, 0)
    search.tell(again, error=ValueError("broken"))
    record = search.run.record.trials[trial.id]
    assert (record.status, record.cause, record.message) == ("failed", "error", "ValueError: broken")


def test_an_exception_says_the_cause(search: Search, trial: AskedTrial) -> None:
    search.tell(trial, error=TrialOutOfMemory("too much"))
    record = search.run.record.trials[trial.id]
    assert (record.status, record.cause, record.message) == ("failed", "out_of_memory", "too much")


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_cut_from_a_long_message_is_in_the_trials_log(search: Search, trial: AskedTrial, lost: bool) -> None:
    message = "a" * 2_000_000 + " the end"
    if lost:
        search.lost(trial, message)
    else:
        search.tell(trial, error=message)
    assert f"tuner | {message}\n" in log_text(search.run.folder, trial.id)
    assert len(search.run.record.trials[trial.id].attempts.last.message) < 4_000


def test_what_is_cut_from_a_long_traceback_is_in_the_trials_log(search: Search, trial: AskedTrial) -> None:
    error = ValueError("short")
    error.add_note("b" * 150_000 + " the end")
    search.tell(trial, error=error)
    assert "b" * 150_000 + " the end" in log_text(search.run.folder, trial.id)
    assert search.run.record.trials[trial.id].attempts.last.message == "ValueError: short"


def test_a_lost_trial_goes_on_from_its_checkpoint_and_who_had_it_is_told_to_leave_it(
    search: Search, trial: AskedTrial, tmp_path: Path
) -> None:
    for epoch in (1, 2):
        epoch_of(search, trial, epoch, tmp_path / "saved")
    epoch_of(search, trial, 3)
    search.lost(trial)
    assert epoch_of(search, trial, 4) == "pause"
    again = search.ask()
    assert again is not None
    assert (again.id, again.from_epoch, list(again.metrics)) == (trial.id, 2, [1, 2, 3])
    assert epoch_of(search, trial, 4) == "pause"
    assert epoch_of(search, again, 3) == "continue"
    with pytest.raises(ReportError, match="got epoch 1 of trial 00000 after epoch 3"):
        epoch_of(search, again, 1)
    search.tell(trial)  # nothing: it is with another
    assert search.run.record.trials[trial.id].status == "running"
