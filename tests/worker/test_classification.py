"""One trial of an image classifier in a worker, without Ray: what is sent to it is kept here."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.capture.repeating import Repeating
from tests.train.parallel.test_group import TRIAL
from tests.worker.test_saving import ASSIGNMENT
from tuner.history.checkpoints import CheckpointStore
from tuner.storage.folder import LocalFolder
from tuner.train import features
from tuner.train.capture import GRAPH
from tuner.train.models import random_network
from tuner.train.stepping import Stepping
from tuner.trial import Folds, ImageClassifier
from tuner.worker import classification
from tuner.worker.assignment import Assignment
from tuner.worker.classification import Classification
from tuner.worker.messages import Message
from tuner.worker.ray_inside.last_trial import LastTrial
from tuner.worker.reporting import WRITER, WorkerSession

SMALL = "shufflenet_v2_x0_5"


class KeptSession(WorkerSession):
    """Its messages stay here."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.sent: list[dict[str, Any]] = []

    def _deliver(self, messages: Sequence[Message]) -> None:
        self.sent += [json.loads(message.text) for message in messages]


def trained(assignment: Assignment, trial: ImageClassifier = TRIAL) -> list[dict[str, Any]]:
    session = KeptSession(assignment)
    try:
        Classification().train(trial, assignment, session)
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


@pytest.mark.parametrize("validation", [0.2, Folds(2)], ids=["one network", "cross-validation"])
@pytest.mark.parametrize("fails", [True, False])
def test_a_worker_whose_recording_failed_runs_no_other_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: Any, fails: bool
) -> None:
    last = LastTrial()
    monkeypatch.setattr(classification, "LAST", last)
    error = RuntimeError("operation not permitted when stream is capturing\nand more")
    recorder = Repeating(fails=error if fails else None)
    monkeypatch.setattr("tuner.train.assembly.Stepping", partial(Stepping, recorder=recorder))
    assignment = replace(ASSIGNMENT, epochs=3, run_uri=str(tmp_path), config={"batch_size": 8}, step_path=GRAPH)
    sent = trained(assignment, replace(TRIAL, validation=validation))
    assert [message["epoch"] for message in sent] == [1, 2, 3]
    assert recorder.done.count("record") > 0
    assert last.spoilt == (
        "taking a trial's steps as one CUDA graph failed (RuntimeError: operation not permitted when stream is "
        "capturing), so its worker was replaced; TUNER_SWITCHED_OFF=graph,compile trains without this"
        if fails
        else None
    )


@pytest.mark.parametrize("together", [False, True])
def test_a_trial_alone_or_with_others_tells_how_far_its_features_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(features, "FIRST_SECONDS", 0.0)
    torch.save(random_network(SMALL, channels=3, classes=7, seed=9).module.state_dict(), tmp_path / "saved.pt")
    head = {"batch_size": 64, "finetune": "head", "image_size": 32, "lr": 0.01, "stem": "sum"}
    other = {"trial": "00008", "config": head, "seed": 4, "epochs": 2, "reported": 0, "to_beat": None}
    assignment = replace(ASSIGNMENT, epochs=2, run_uri=str(tmp_path), config=head, others=[other] if together else [])
    sent = trained(assignment, ImageClassifier("digits", SMALL, weights=tmp_path / "saved.pt"))
    told = [
        message["features"]["model"]
        for message in sent
        if message.get("trial") == assignment.trial and "features" in message
    ]
    assert told == [SMALL] * len(told) != []
    assert {message["trial"] for message in sent if "epoch" in message} == {assignment.trial} | (
        {"00008"} if together else set()
    )
