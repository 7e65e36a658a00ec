"""Connections of the processes that lie on other nodes."""

import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import pytest

from tuner.worker import spread
from tuner.worker.spread import _known

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
