"""The end of a stay in a replay, whatever the trial's code makes of it."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.worker.test_saving import ASSIGNMENT
from tuner.replay.stays import Stay
from tuner.replay.training import train
from tuner.trial import FunctionTrial

# a thread of one test may be reported during the next one
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def plain(config: dict[str, Any]) -> None:
    while True:
        tuner.report(loss=1.0)


def careless(config: dict[str, Any]) -> None:
    for _ in range(9):
        try:
            tuner.report(loss=1.0)
        except:  # noqa: E722
            print("ignored")


def threaded(config: dict[str, Any]) -> None:
    thread = threading.Thread(target=plain, args=(config,))
    thread.start()
    thread.join()


def fails_in_clean_up(config: dict[str, Any]) -> None:
    try:
        plain(config)
    finally:
        raise RuntimeError("no such service")


def interrupted(config: dict[str, Any]) -> None:
    tuner.report(loss=1.0)
    raise KeyboardInterrupt


@pytest.mark.parametrize("function", [plain, careless, threaded, fails_in_clean_up])
def test_a_stay_ends_after_its_last_epoch(tmp_path: Path, function: Any) -> None:
    told: list[dict[str, Any]] = []
    stay = Stay(replace(ASSIGNMENT, save_epochs=[]), 3)
    train(FunctionTrial(function), [stay], str(tmp_path), told.append)
    assert [message.get("epoch") for message in told] == [1, 2, 3]


def test_a_trial_that_interrupts_itself_fails(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    train(FunctionTrial(interrupted), [Stay(ASSIGNMENT, 3)], str(tmp_path), told.append)
    assert told[1:] == [{"failure": "KeyboardInterrupt"}]
