"""What a trial changed in its process is put back, or named so that the worker is replaced."""

import builtins
import json
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tuner.worker.clean_process import clean_process
from tuner.worker.ray_inside.last_trial import LastTrial
from tuner.worker.spoiling import _SETTINGS

READ = {name: read for name, (read, _) in _SETTINGS.items()}
SOFT, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


def spoiled(change: Callable[[], object]) -> list[str]:
    found: list[str] = []
    with clean_process(seed=0, threads=1, spoiled=found.append):
        change()
    return found


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("limits of the process", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT - 1, HARD))),
        ("the environment", os.environ.clear),
        ("the working directory", lambda: os.chdir("/")),
        ("the import path", lambda: setattr(sys, "path", [])),
        ("the umask", lambda: os.umask(0o777)),
        ("the recursion limit", lambda: sys.setrecursionlimit(500)),
        ("the timeout of sockets", lambda: socket.setdefaulttimeout(1.0)),
        ("numpy's floating-point errors", lambda: np.seterr(all="raise")),
    ],
)
def test_a_setting_is_put_back(name: str, change: Callable[[], object]) -> None:
    before = READ[name]()
    changed: list[object] = []
    assert spoiled(lambda: (change(), changed.append(READ[name]()))) == []
    assert changed != [before]
    assert READ[name]() == before


@pytest.fixture
def kept() -> Iterator[None]:
    """What a process can't be given back is put back by the test."""
    handler, functions = signal.getsignal(signal.SIGUSR1), (builtins.open, json.dumps, random.random, torch.rand)
    yield
    signal.signal(signal.SIGUSR1, handler)
    builtins.open, json.dumps, random.random, torch.rand = functions  # type: ignore[assignment]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("signal handlers", lambda: signal.signal(signal.SIGUSR1, lambda *_: None)),
        ("builtins.open", lambda: setattr(builtins, "open", None)),
        ("json.dumps", lambda: setattr(json, "dumps", repr)),
        ("random.random", lambda: setattr(random, "random", lambda: 0.5)),
        ("torch.rand", lambda: setattr(torch, "rand", torch.zeros)),
    ],
)
def test_what_cannot_be_put_back_is_named(name: str, change: Callable[[], object]) -> None:
    assert spoiled(change) == [name]


def test_a_folder_that_the_trial_deleted_or_code_that_does_nothing_spoils_nothing(tmp_path: Path) -> None:
    def delete() -> None:
        os.chdir(folder := tmp_path / "folder")
        folder.rmdir()

    (tmp_path / "folder").mkdir()
    assert spoiled(delete) == []
    assert spoiled(lambda: torch.nn.functional.relu(torch.rand(3))) == []


def test_a_worker_is_told_what_was_changed_there() -> None:
    last = LastTrial()
    last.change("json.dumps")
    assert last.spoilt == (
        "a trial changed json.dumps in its process, so its worker was replaced; put it back at the trial's end"
    )
