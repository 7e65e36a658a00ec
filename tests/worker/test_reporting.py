import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.test_saving import ASSIGNMENT
from tuner.history.checkpoints import CheckpointStore
from tuner.storage.folder import LocalFolder
from tuner.worker import reporting
from tuner.worker.assignment import Assignment
from tuner.worker.messages import Message
from tuner.worker.reporting import WorkerSession

Metrics = dict[str, Any]


def test_a_trial_goes_on_from_the_newest_whole_checkpoint_of_an_epoch_that_the_driver_knows(tmp_path: Path) -> None:
    """Epoch 3 was saved and never recorded: gone on from, it would be missing in the tables."""
    store = CheckpointStore(LocalFolder(tmp_path))
    for epoch in (1, 2, 3):
        store.write(ASSIGNMENT.trial, epoch, lambda folder, epoch=epoch: (folder / "epoch").write_text(str(epoch)))  # type: ignore[misc]
    for reported, expected in ((3, "3"), (2, "2"), (0, None)):
        session = WorkerSession(replace(ASSIGNMENT, run_uri=str(tmp_path), reported=reported))
        found = session.checkpoint()
        assert (found and (found / "epoch").read_text()) == expected
        session.close()
    (tmp_path / "checkpoints" / ASSIGNMENT.trial / "000002" / "files" / "epoch").write_text("9")
    session = WorkerSession(replace(ASSIGNMENT, run_uri=str(tmp_path), reported=2))
    assert [path.name for path in session.checkpoints()] == ["files"]
    found = session.checkpoint()
    assert found is not None
    assert (found / "epoch").read_text() == "1"
    assert session.notes[0].startswith("a checkpoint is skipped: a checkpoint must be complete, got checkpoints/00003/")
    (found / "epoch").write_text("the function's own copy")
    assert (store.fetch(ASSIGNMENT.trial, 1, tmp_path / "copy") / "epoch").read_text() == "1"
    session.close()


def test_a_checkpoint_that_is_deleted_meanwhile_is_skipped_without_a_word(tmp_path: Path) -> None:
    store = CheckpointStore(LocalFolder(tmp_path))
    for epoch in (1, 2, 3):
        store.write(ASSIGNMENT.trial, epoch, lambda folder: (folder / "epoch").write_text("x"))
    session = WorkerSession(replace(ASSIGNMENT, run_uri=str(tmp_path), reported=3))
    whole = session._whole()
    assert next(whole)[0] == 3
    store.delete(ASSIGNMENT.trial, 2)
    assert next(whole)[0] == 1
    assert session.notes == []
    session.close()


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"epoch": 2}, {"epoch": 2}, "got epoch=2 after epoch=2 was reported"),
        ({"epoch": 2.0}, {"epoch": 1.0}, "got epoch=1 after epoch=2 was reported"),
        ({"training_iteration": 3}, {"training_iteration": 3}, "save training_iteration + 1 in the checkpoint"),
        ({"epoch": 2}, {"epoch": 3}, None),
        ({"epoch": 2}, {}, None),
        ({}, {"epoch": 2}, None),
        ({"epoch": "two"}, {"epoch": 2}, None),
    ],
)
def test_an_epoch_that_a_function_repeats_after_a_pause_is_told_once(
    tmp_path: Path, before: Metrics, after: Metrics, told: str | None
) -> None:
    reports = {1: {"loss": 2.0}, 2: {"loss": 1.0, **before}}
    CheckpointStore(LocalFolder(tmp_path)).write(
        ASSIGNMENT.trial, 2, lambda folder: (folder / "epoch").touch(), reports
    )
    session = Held(replace(ASSIGNMENT, run_uri=str(tmp_path), reported=2))
    session.answers.set()
    assert session.checkpoint() is not None
    for _ in range(2):  # the second epoch of the stay isn't compared
        session.report({"loss": 0.5, **after}, None)
    session.flush()
    assert [told in note for note in session.told] == [True] if told else session.told == []
    session.close()


def test_a_metric_that_contains_itself_fails_its_trial_in_a_sentence(tmp_path: Path) -> None:
    session = WorkerSession(replace(ASSIGNMENT, run_uri=str(tmp_path)))
    side: list[Any] = []
    side.append(side)
    with pytest.raises(
        ValueError, match=r"^metrics need plain values, got a list or dict that contains itself for 'si"
    ):
        session.report({"loss": 1.0, "side": side}, None)
    session.close()


class Held(WorkerSession):
    """Its driver answers when it is told to."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.answers, self.epochs, self.losses = threading.Event(), list[int](), list[float]()
        self.told: list[str] = []  # notes
        self.ends_at = 10**9

    def _deliver(self, messages: Sequence[Message]) -> None:
        assert self.answers.wait(60)
        told = [json.loads(message.text) for message in messages]
        self.told += [note for one in told for note in one.get("notes", [])]
        self.epochs += [one["epoch"] for one in told if "epoch" in one]
        self.losses += [one["metrics"]["loss"] for one in told if "epoch" in one]
        if any(epoch >= self.ends_at for epoch in self.epochs):
            raise SystemExit(0)


def goes_on(session: Held, epoch: int, **how: Any) -> bool:
    """Whether the report of an epoch returns before the driver has answered, which it then does."""
    reports = threading.Thread(target=session.report_epoch, args=(epoch, {"loss": 1.0}), kwargs=how)
    session.answers.clear()
    reports.start()
    reports.join(0.2)
    before = not reports.is_alive()
    session.answers.set()
    reports.join(60)
    session.flush()
    assert session.epochs[-1] == epoch
    return before


def test_a_trial_of_quick_epochs_waits_for_the_driver_only_where_it_may_be_stopped_or_has_saved(tmp_path: Path) -> None:
    session = Held(replace(ASSIGNMENT, run_uri=str(tmp_path), epochs=9, save_epochs=[4]))
    session.quick_seconds = 60.0
    assert not goes_on(session, 1)  # how long its epochs take isn't known yet
    assert goes_on(session, 2)
    assert goes_on(session, 3)
    assert not goes_on(session, 4)  # the scheduler may stop or pause it here
    assert goes_on(session, 5)
    assert not goes_on(session, 6, fill=lambda folder: (folder / "epoch").write_text("6"))
    assert goes_on(session, 7)
    session.quick_seconds = 0.0
    assert not goes_on(session, 8)
    session.quick_seconds = 60.0
    assert not goes_on(session, 9)  # the last
    assert session.epochs == list(range(1, 10))
    session.close()


def test_a_metric_that_is_changed_after_its_report_is_reported_as_it_was(tmp_path: Path) -> None:
    session = Held(replace(ASSIGNMENT, run_uri=str(tmp_path), epochs=9, save_epochs=[]))
    session.quick_seconds = 60.0
    session.answers.set()
    total = np.zeros(())
    for epoch in range(1, 6):
        total[...] = epoch
        session.report_epoch(epoch, {"loss": total})
    total[...] = 0.0
    session.flush()
    assert session.losses == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"^metrics need plain values, got a dict whose names aren't text for 'loss'"):
        session.report_epoch(6, {"loss": {(1, 2): 3}})
    session.fail("error", "told all the same")
    session.close()


def test_no_checkpoint_is_written_after_an_epoch_at_which_the_driver_has_ended_the_trial(tmp_path: Path) -> None:
    session = Held(replace(ASSIGNMENT, run_uri=str(tmp_path), epochs=9, save_epochs=[]))
    session.quick_seconds, session.ends_at = 60.0, 3
    session.answers.set()
    session.report_epoch(1, {"loss": 1.0})
    session.answers.clear()
    for epoch in (2, 3):
        session.report_epoch(epoch, {"loss": 1.0})
    session.answers.set()
    written = []
    with pytest.raises(SystemExit):
        session.report_epoch(4, {"loss": 1.0}, fill=written.append)
    assert not written
    session.close()


def test_a_checkpoint_has_the_last_reports_as_the_driver_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "MOST_REPORTS", 2)
    session = Held(replace(ASSIGNMENT, run_uri=str(tmp_path)))
    session.answers.set()
    for epoch in (1, 2, 3):
        session.report_epoch(epoch, {"loss": np.float32(epoch / 2)}, fill=lambda folder: None)
    store = CheckpointStore(LocalFolder(tmp_path))
    assert store.reports(ASSIGNMENT.trial, 1) == {1: {"loss": 0.5}}
    assert store.reports(ASSIGNMENT.trial, 3) == {2: {"loss": 1.0}, 3: {"loss": 1.5}}
    session.close()
