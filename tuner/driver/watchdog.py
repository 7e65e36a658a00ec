"""Ends a search that has lost Ray, or that doesn't end when asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tuner.lifecycle.interruption import RAY_IS_GONE, Interruption

LOOK_SECONDS = 0.5
LOST_SECONDS = 2.0  # for a search to notice by itself that Ray is gone
ANSWER_SECONDS = 2.0
SILENT_LOOKS = 4  # a cluster is gone if it accepts no connection so many times in a row


class Watchdog:
    """A thread that watches Ray for the length of a `with` block."""

    def __init__(self, interruption: Interruption, is_gone: Callable[[], bool]) -> None:
        self._interruption, self._is_gone = interruption, is_gone
        self.ray_is_gone = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(ANSWER_SECONDS)

    def _watch(self) -> None:
        wait = LOOK_SECONDS
        while not self._stopped.wait(wait):
            if not self.ray_is_gone and self._is_gone():
                self.ray_is_gone = True
                self._interruption.ask(RAY_IS_GONE)
            if self._is_overdue():
                self._interruption.break_in()
                wait = LOST_SECONDS  # in case the interrupted code swallowed the first one

    def _is_overdue(self) -> bool:
        allowed = LOST_SECONDS if self.ray_is_gone else self._interruption.grace_seconds / 2
        return self._interruption.is_set() and self._interruption.seconds_since() >= allowed


class Listening:
    """Checks again and again whether something listens at addresses; a full queue doesn't count as silence."""

    def __init__(self, gcs_address: str, raylet_socket: str) -> None:
        self._gcs_address, self._raylet_socket = gcs_address, raylet_socket
        self._silent = 0

    def is_gone(self) -> bool:
        """Whether one of the addresses didn't answer any of the last checks."""
        self._silent = 0 if self._gcs_answers() and self._raylet_answers() else self._silent + 1
        return self._silent >= SILENT_LOOKS

    def _gcs_answers(self) -> bool:
        host, _, port = self._gcs_address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS):
                return True
        except OSError:
            return False

    def _raylet_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(self._raylet_socket)
            except (ConnectionError, FileNotFoundError):
                return False
            except OSError:
                return True
            return True
