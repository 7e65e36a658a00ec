"""Connections of the processes that lie on other nodes."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.train.parallel.test_launching import task
from tests.worker.test_output import lines
from tuner.train.parallel.launching import Here, Ranks
from tuner.worker import spread
from tuner.worker.far_output import FarOutput
from tuner.worker.output import captured
from tuner.worker.spread import Bundle, Starter, _known

KEY = b"0123456789abcdef"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def beside(what: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    return thread


def test_one_who_knows_the_key_is_talked_to_for_as_long_as_it_takes(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "SECONDS_TO_AUTHENTICATE", 1)
    wait = threading.Event()

    def talk() -> None:
        with Client(server.getsockname(), authkey=KEY) as theirs:
            wait.wait(1.5)  # longer than the time to authenticate
            theirs.send("here")

    thread = beside(talk)
    with _known(server.accept()[0], KEY) as connection:
        assert connection.recv() == "here"
    thread.join()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"", None], ids=["a browser", "a scanner", "silence"])
def test_strangers_are_turned_away(server: socket.socket, monkeypatch: pytest.MonkeyPatch, said: bytes | None) -> None:
    monkeypatch.setattr(spread, "SECONDS_TO_AUTHENTICATE", 1)
    with socket.create_connection(server.getsockname()) as stranger:
        if said is not None:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
        with pytest.raises((OSError, EOFError)):
            _known(server.accept()[0], KEY)


def test_another_key_is_turned_away(server: socket.socket) -> None:
    def talk() -> None:
        with pytest.raises((AuthenticationError, EOFError, OSError)):
            Client(server.getsockname(), authkey=b"another")

    thread = beside(talk)
    with pytest.raises(AuthenticationError):
        _known(server.accept()[0], KEY)
    thread.join()


class Beside(Bundle):
    """A bundle without Ray: the actor's methods are called here."""

    def __init__(self, output: int | None) -> None:
        self._index, self._key, self._device = 1, KEY, "cpu"
        self._pipe, self._output, self._actor = output, None, Starter()

    def start(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._starting = beside(lambda: self._actor.start(*self._address("127.0.0.1")))

    def connected(self) -> tuple[Any, str]:
        with self._server as server:
            return _known(server.accept()[0], self._key), self._device

    def show_stacks(self) -> None:
        self._actor.show_stacks()

    def kill(self) -> None:
        self._starting.join()
        self._actor._process.kill()
        self._actor._process.wait()
        assert self._output is not None
        self._output.close()


def talking(config: dict[str, Any]) -> nn.Module:
    print(f"a network in process {torch.distributed.get_rank()}")
    print("and a warning", file=sys.stderr)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


@pytest.mark.slow
def test_what_the_process_of_another_node_prints_is_in_the_log_under_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "_interface", dict)
    with captured("00001", str(tmp_path), "begins") as output:
        places = [Here("cpu", output.pipe("rank 0")), Beside(output.pipe("rank 1"))]
        with Ranks(task(talking), places) as ranks:
            assert ranks.next_epoch().epoch == 1
            output.epoch(2)
            ranks.show_stacks()
            ranks.next_epoch()
    said = lines(tmp_path)
    for rank in (0, 1):
        assert (f"epoch 1 rank {rank}", f"a network in process {rank}") in said
        assert (f"epoch 1 rank {rank}", "and a warning") in said
        assert any(source.endswith(f"rank {rank}") and "most recent call first" in text for source, text in said)


def test_a_process_that_never_comes_holds_up_the_end_of_a_trial_for_a_moment(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    far = FarOutput("127.0.0.1", writing, _known, seconds=60)
    os.close(writing)
    far.close()
    assert os.read(reading, 1) == b""  # nobody holds the pipe any more
    os.close(reading)
