"""The end of a trial in its worker: what the driver is told, and what the worker still holds of it."""

import gc
import json
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
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
from tuner.worker.messages import Message
from tuner.worker.reporting import WorkerSession

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


# What a trial's code does when it is to end, or otherwise than by returning


class Interrupted(BaseException):
    """A library's own, past handlers for Exception."""


def swallow_and_return(config: dict[str, Any]) -> None:
    with suppress(SystemExit):
        tuner.report(loss=1.0)


def fail_in_clean_up(config: dict[str, Any]) -> None:
    try:
        tuner.report(loss=1.0)
    finally:
        raise RuntimeError("no such service")


def exit_otherwise(config: dict[str, Any]) -> None:
    try:
        tuner.report(loss=1.0)
    except SystemExit:
        sys.exit(3)


def report_in_a_thread(config: dict[str, Any]) -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(tuner.report, loss=1.0)


def raise_interrupt(config: dict[str, Any]) -> None:
    raise KeyboardInterrupt


def raise_own(config: dict[str, Any]) -> None:
    raise Interrupted("by its callback")


def fork(config: dict[str, Any]) -> None:
    """Its child goes on as if it were the trial."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tuner.report(loss=1.0, code=code)
    elif config["child"] == "reports":
        tuner.report(loss=2.0)
    elif config["child"] == "exits":
        sys.exit(7)


def ran(function: Any, tmp_path: Path, **config: Any) -> None:
    assignment = replace(ASSIGNMENT, config=config, epochs=9, save_epochs=[], run_uri=str(tmp_path))
    trainable.perform(cloudpickle.dumps(FunctionTrial(function)), assignment)


@pytest.mark.parametrize("function", [swallow_and_return, fail_in_clean_up, exit_otherwise, report_in_a_thread])
def test_a_trial_that_was_ended_tells_nothing_more_whatever_its_code_makes_of_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: Any
) -> None:
    """Ray would never answer."""
    told: list[str] = []

    def end(session: WorkerSession, messages: Sequence[Message]) -> None:
        told.extend(next(iter(json.loads(message.text))) for message in messages)
        if told[-1] == "epoch":
            raise SystemExit(0)

    monkeypatch.setattr(WorkerSession, "_deliver", end)
    with pytest.raises(SystemExit) as ended:
        ran(function, tmp_path)
    assert ended.value.code == 0
    assert told == ["placed", "epoch"]
    log = "".join(path.read_text() for path in tmp_path.glob("logs/*"))
    assert ("RuntimeError: no such service" in log) == (function is fail_in_clean_up)


@pytest.mark.parametrize(
    ("function", "message"),
    [(raise_interrupt, "KeyboardInterrupt"), (raise_own, "Interrupted: by its callback")],
)
def test_a_trial_fails_with_whatever_it_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: Any, message: str
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(
        WorkerSession, "_deliver", lambda session, messages: told.extend(json.loads(one.text) for one in messages)
    )
    ran(function, tmp_path)
    failure = told[-1]["failure"]
    assert (failure["cause"], failure["message"]) == ("error", message)
    assert function.__name__ in failure["traceback"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("child", "code"), [("reports", 1), ("exits", 7), ("returns", 0)])
def test_a_process_that_the_trial_forks_ends_with_the_trials_code_and_the_trial_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, child: str, code: int
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(
        WorkerSession, "_deliver", lambda session, messages: told.extend(json.loads(one.text) for one in messages)
    )
    ran(fork, tmp_path, child=child)
    assert [message["metrics"] for message in told if "epoch" in message] == [{"loss": 1.0, "code": code}]
    log = "".join(path.read_text() for path in tmp_path.glob("logs/*"))
    assert ("RuntimeError: tuner.report works in the trial's own process" in log) == (child == "reports")
