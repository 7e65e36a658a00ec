"""One trial of an image classifier in a worker, without Ray: what is sent to it is kept here."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.train.parallel.test_group import TRIAL
from tests.worker.test_saving import ASSIGNMENT
from tuner.history.checkpoints import CheckpointStore
from tuner.storage.folder import LocalFolder
from tuner.worker.assignment import Assignment
from tuner.worker.classification import Classification
from tuner.worker.messages import Message
from tuner.worker.reporting import WRITER, WorkerSession


class KeptSession(WorkerSession):
    """Its messages stay here."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.sent: list[dict[str, Any]] = []

    def _deliver(self, messages: Sequence[Message]) -> None:
        self.sent += [json.loads(message.text) for message in messages]


def trained(assignment: Assignment) -> list[dict[str, Any]]:
    session = KeptSession(assignment)
    try:
        Classification().train(TRIAL, assignment, session)
        session.flush()
    finally:
        session.close()
    assert WRITER.flush(60)
    return session.sent


def test_every_epoch_is_reported_with_its_checkpoint_and_a_trial_goes_on_after_what_is_known(tmp_path: Path) -> None:
    assignment = replace(ASSIGNMENT, epochs=3, save_epochs=[2], run_uri=str(tmp_path), config={"batch_size": 16})
    sent = trained(assignment)
    assert [message["epoch"] for message in sent] == [1, 2, 3]
    assert all(0 <= message["metrics"]["val_accuracy"] <= 1 for message in sent)
    assert sent[0]["saving"] == 1  # the best so far is written behind its back
    assert 2 in sent[1]["saved"]  # the trial may be paused here
    assert sent[2]["saving"] is None  # the last is written before it is reported, if at all
    assert set(CheckpointStore(LocalFolder(tmp_path)).epochs(assignment.trial)) >= {1, 2}
    assert [message["epoch"] for message in trained(replace(assignment, reported=2))] == [3]


def test_a_winners_refit_trains_on_all_images_and_ends_within_its_schedule(tmp_path: Path) -> None:
    assignment = replace(
        ASSIGNMENT, epochs=5, refit_epochs=2, to_beat=1.0, run_uri=str(tmp_path), config={"batch_size": 16}
    )
    sent = trained(assignment)
    assert [message["epoch"] for message in sent] == [1, 2]
    assert not [name for name in sent[1]["metrics"] if name.startswith("val_")]
    assert sent[1]["saved"] == [2]
    assert CheckpointStore(LocalFolder(tmp_path)).epochs(assignment.trial) == [2]
    assert [message["epoch"] for message in trained(replace(assignment, reported=1))] == [1, 2]
