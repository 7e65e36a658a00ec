"""What a worker still holds of a trial when it gives memory back: nothing, however the trial ended."""

import gc
import json
import weakref
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from ray import cloudpickle
from ray.train._internal import session as ray_session

import tuner
from tests.worker.test_saving import ASSIGNMENT
from tuner.errors import TrialError
from tuner.trial import FunctionTrial
from tuner.worker import clean_process, trainable
from tuner.worker.reporting import WorkerSession
from tuner.worker.sending import Message

LARGE: list["weakref.ref[torch.Tensor]"] = []  # what trials made


def stop(session: Any, messages: Sequence[Message]) -> None:
    epochs = [int(text.split(",")[0].split(":")[1]) for text, _ in messages if text.startswith('{"epoch"')]
    if any(epoch >= session._assignment.config["ends"] for epoch in epochs):
        raise SystemExit(0)


def train(config: dict[str, Any]) -> None:
    """A trial with a large tensor, alive in its frame however it ends."""
    large = torch.zeros(1000)
    LARGE.append(weakref.ref(large))
    if config["fails"]:
        raise TrialError("no such thing")
    for _ in range(config["ends"]):
        tuner.report(loss=1.0)
    while config["ends"] > 1:  # it is ahead of the driver until that has answered
        tuner.report(loss=1.0)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether the trial's tensor lived each time that memory was given back."""
    seen: list[bool] = []
    give_back = clean_process._give_memory_back

    def noted() -> None:
        seen.append(LARGE[-1]() is not None)
        give_back()

    monkeypatch.setattr(clean_process, "_give_memory_back", noted)
    gc.disable()  # it would come to the rescue at any moment
    yield seen
    gc.enable()


@pytest.mark.parametrize("ends", ["stopped", "stopped while ahead", "failed", "completed"])
def test_a_trials_memory_is_free_when_it_is_given_back(
    alive: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str
) -> None:
    stopped = ends.startswith("stopped")
    stopping = FunctionType(stop.__code__, vars(ray_session))  # where Ray raises it
    monkeypatch.setattr(WorkerSession, "_deliver", stopping if stopped else lambda session, messages: None)
    config = {"fails": ends == "failed", "ends": 2 if ends == "stopped while ahead" else 1}
    assignment = replace(ASSIGNMENT, config=config, epochs=10**9, save_epochs=[], run_uri=str(tmp_path))
    with pytest.raises(SystemExit) if stopped else nullcontext():
        trainable.perform(cloudpickle.dumps(FunctionTrial(train)), assignment)
    assert alive == [False]


def report_and_return(config: dict[str, Any]) -> None:
    for _ in range(config["epochs"]):
        tuner.report(loss=1.0)


def test_what_a_function_reported_before_it_returns_by_itself_reaches_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(
        WorkerSession, "_deliver", lambda session, messages: told.extend(json.loads(one.text) for one in messages)
    )
    assignment = replace(ASSIGNMENT, config={"epochs": 5}, epochs=10**9, save_epochs=[], run_uri=str(tmp_path))
    trainable.perform(cloudpickle.dumps(FunctionTrial(report_and_return)), assignment)
    assert [message["epoch"] for message in told if "epoch" in message] == [1, 2, 3, 4, 5]
