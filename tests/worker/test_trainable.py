"""What a worker still holds of a trial when it gives memory back: nothing, however the trial ended."""

import gc
import weakref
from collections.abc import Iterator
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

LARGE: list["weakref.ref[torch.Tensor]"] = []  # what trials made


def stop(session: Any, message: dict[str, Any]) -> None:
    if "epoch" in message:
        raise SystemExit(0)


def train(config: dict[str, Any]) -> None:
    """A trial with a large tensor, alive in its frame however it ends."""
    large = torch.zeros(1000)
    LARGE.append(weakref.ref(large))
    if config["fails"]:
        raise TrialError("no such thing")
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


@pytest.mark.parametrize("ends", ["stopped", "failed", "completed"])
def test_a_trials_memory_is_free_when_it_is_given_back(
    alive: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str
) -> None:
    stopping = FunctionType(stop.__code__, vars(ray_session))  # where Ray raises it
    monkeypatch.setattr(WorkerSession, "_send", stopping if ends == "stopped" else lambda session, message: None)
    assignment = replace(ASSIGNMENT, config={"fails": ends == "failed"}, run_uri=str(tmp_path))
    with pytest.raises(SystemExit) if ends == "stopped" else nullcontext():
        trainable.perform(cloudpickle.dumps(FunctionTrial(train)), assignment)
    assert alive == [False]
