"""Sends the output of a trial's process on another node to the log of the trial's worker.

The process prints into a connection to the worker; a thread there writes what arrives to the pipe of the trial's log.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection

SECONDS_FOR_THE_LAST = 2.0  # that the end of a trial waits for a process's last output
READ_BYTES = 2**16
LOOK_SECONDS = 0.5
Known = Callable[[socket.socket, bytes], "Connection[bytes, bytes]"]  # refuses unknown clients


class FarOutput:
    """Takes what one process prints, and writes it into the file descriptor `pipe` until the process is gone.

    The process connects to `port` with `key`, within `seconds`.
    """

    def __init__(self, host: str, pipe: int, known: Known, seconds: float) -> None:
        self._server = socket.create_server((host, 0))
        self.port: int = self._server.getsockname()[1]
        self.key = secrets.token_bytes(32)
        self._pipe = os.dup(pipe)  # the trial may close its own copy while the last lines are on their way
        self._known, self._seconds = known, seconds
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tuner-rank-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The process was killed: wait until its earlier output has been passed on."""
        self._closed.set()
        self._thread.join(SECONDS_FOR_THE_LAST)

    def _work(self) -> None:
        try:
            connection = self._connected()
            if connection is not None:
                with connection:
                    self._hand_on(connection.fileno())
        finally:
            os.close(self._pipe)

    def _connected(self) -> Connection[bytes, bytes] | None:
        """The connection of the process; None if it didn't connect in time."""
        until = time.monotonic() + self._seconds
        with self._server as server:
            server.settimeout(LOOK_SECONDS)
            while time.monotonic() < until and not self._closed.is_set():
                with suppress(TimeoutError, EOFError, AuthenticationError, OSError):
                    return self._known(server.accept()[0], self.key)
        return None

    def _hand_on(self, connection: int) -> None:
        with suppress(OSError):  # its node or the log's process is gone
            while found := os.read(connection, READ_BYTES):
                view = memoryview(found)
                while view:
                    view = view[os.write(self._pipe, view) :]
