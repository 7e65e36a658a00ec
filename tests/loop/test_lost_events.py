"""Events that are gone, in a power cut or by somebody's hand, while checkpoints and the driver know more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.loop.simulation import build, drive, events_of, parabola, study
from tuner import ASHA, Budget
from tuner.history.checkpoints import CheckpointStore, Reports
from tuner.history.events import Event
from tuner.loop.search_loop import SearchLoop
from tuner.storage.folder import LocalFolder

TRIAL = "00000"


def cut(folder: Path, epoch: int) -> None:
    """Take away all events from the first report of this epoch on."""
    segment = folder / "events/000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    reports = (
        number for number, line in enumerate(lines) if b'"epoch_reported"' in line and b'"epoch":%d,' % epoch in line
    )
    segment.write_bytes(b"".join(lines[: next(reports)]))


def train(folder: Path, epochs: int, **changes: object) -> SearchLoop:
    """One trial is trained for so many epochs, each with a checkpoint that doesn't say what it reported."""
    loop = build(study(**{"budget": Budget(trials=1, max_epochs=9), **changes}), folder)
    drive(loop, reports=epochs, fill=lambda files: (files / "state").write_text("trained") and None)
    return loop


def tell(folder: Path, epoch: int, reports: Reports) -> None:
    """Let the checkpoint of this epoch say what was reported."""
    CheckpointStore(LocalFolder(folder)).write(TRIAL, epoch, lambda files: (files / "state").touch(), reports)


def resumed(folder: Path, **changes: object) -> SearchLoop:
    declared = study(**{"budget": Budget(trials=1, max_epochs=9), **changes})
    return build(declared, folder, history=events_of(folder))


def reports(folder: Path) -> list[Event]:
    return [event for event in events_of(folder) if event["event"] == "epoch_reported"]


@pytest.mark.parametrize("known", [6, 3, 1])
def test_where_only_a_later_checkpoint_is_left_its_epochs_count_as_trained(tmp_path: Path, known: int) -> None:
    config = train(tmp_path, 6).record.trials[TRIAL].config
    cut(tmp_path, known)
    loop = resumed(tmp_path)
    start = loop.next_action()
    assert start is not None
    assert (start.trial, start.reported, start.config) == (TRIAL, 6, config)
    assert CheckpointStore(LocalFolder(tmp_path)).epochs(TRIAL) == [6]
    told = [event["metrics"] for event in reports(tmp_path)]
    assert told == [{"loss": parabola(config, epoch)} for epoch in range(1, known)] + [{}] * (7 - known)
    assert loop.record.notices[-1] == (
        f"trial {TRIAL} goes on from its checkpoint of epoch 6, although its events end at epoch {known - 1}, as after "
        "a power cut"
    )
    for epoch in (7, 8, 9):
        loop.report(TRIAL, epoch, {"loss": parabola(config, epoch)})
    assert [event["epoch"] for event in reports(tmp_path)] == list(range(1, 10))
    assert loop.record.trials[TRIAL].status == "completed"


def test_what_the_checkpoint_says_was_reported_is_taken(tmp_path: Path) -> None:
    train(tmp_path, 6)
    tell(tmp_path, 6, {5: {"loss": 0.25}, 6: {"loss": 0.125}})
    cut(tmp_path, 4)
    resumed(tmp_path)
    assert [event["metrics"] for event in reports(tmp_path)[3:]] == [{}, {"loss": 0.25}, {"loss": 0.125}]


def test_what_follows_the_last_of_these_epochs_is_decided(tmp_path: Path) -> None:
    scheduler = ASHA(grace_epochs=2, reduction_factor=2)
    train(tmp_path, 2, scheduler=scheduler)
    tell(tmp_path, 2, {1: {"loss": 0.5}, 2: {"loss": 0.25}})
    cut(tmp_path, 1)
    loop = resumed(tmp_path, scheduler=scheduler)
    assert [event["decision"] for event in reports(tmp_path)] == ["continue", "pause"]
    assert loop.record.trials[TRIAL].status == "paused"
    drive(loop)
    assert [event["epoch"] for event in reports(tmp_path)] == list(range(1, 10))


def test_nothing_is_decided_after_the_epochs_before_as_the_trial_went_on(tmp_path: Path) -> None:
    train(tmp_path, 3)
    tell(tmp_path, 3, {epoch: {"loss": 1 / epoch} for epoch in (1, 2, 3)})
    cut(tmp_path, 1)
    start = resumed(tmp_path, scheduler=ASHA(grace_epochs=2, reduction_factor=2)).next_action()
    assert [event["decision"] for event in reports(tmp_path)] == ["continue"] * 3
    assert start is not None
    assert start.reported == 3


def test_a_trial_that_was_trained_to_its_end_is_completed(tmp_path: Path) -> None:
    train(tmp_path, 9)
    tell(tmp_path, 9, {9: {"loss": 0.25}})
    cut(tmp_path, 9)
    loop = resumed(tmp_path)
    assert (loop.record.trials[TRIAL].status, loop.record.best_trial()) == ("completed", loop.record.trials[TRIAL])
    assert loop.next_action() is None


@pytest.mark.parametrize("damaged", [False, True])
def test_a_known_checkpoint_is_gone_on_from_as_long_as_it_is_complete(tmp_path: Path, damaged: bool) -> None:
    train(tmp_path, 6)
    tell(tmp_path, 5, {})
    cut(tmp_path, 6)
    if damaged:
        (tmp_path / f"checkpoints/{TRIAL}/000005/files/state").write_text("other")
    start = resumed(tmp_path).next_action()
    assert start is not None
    assert start.reported == (6 if damaged else 5)
    assert CheckpointStore(LocalFolder(tmp_path)).epochs(TRIAL)[-1] == start.reported


def test_a_later_checkpoint_that_is_damaged_is_deleted(tmp_path: Path) -> None:
    train(tmp_path, 6)
    cut(tmp_path, 6)
    (tmp_path / f"checkpoints/{TRIAL}/000006/files/state").write_text("other")
    start = resumed(tmp_path).next_action()
    assert start is not None
    assert (start.reported, CheckpointStore(LocalFolder(tmp_path)).epochs(TRIAL)) == (5, [])


def test_events_that_somebody_cuts_off_while_the_search_runs_are_written_again_with_a_notice(tmp_path: Path) -> None:
    loop = train(tmp_path, 6)
    segment = tmp_path / "events/000001.jsonl"
    whole = events_of(tmp_path)
    os.truncate(segment, 100)
    loop.tend_events()
    said = "events/000001.jsonl was cut off, replaced or deleted while the search ran; it was written again"
    assert (events_of(tmp_path)[:-1], loop.record.notices) == (whole, [said])
    segment.unlink()
    loop.close()
    assert (events_of(tmp_path)[: len(whole)], loop.record.notices) == (whole, [said, said])
