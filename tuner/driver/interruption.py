"""Ctrl-C and SIGTERM: a search is asked to end, at a moment when it can."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """The first SIGINT or SIGTERM asks the search to end; a second SIGINT is an ordinary KeyboardInterrupt."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._ignoring = False

    def install(self) -> None:
        """Take the signals; again after Ray has started, which takes SIGTERM for itself."""
        if _in_main_thread():
            for number in _SIGNALS:
                signal.signal(number, self.handle)

    def is_set(self) -> bool:
        """Whether the search should end."""
        return self._asked.is_set()

    def ignore_more(self) -> None:
        """From now on the run is being written to its end, which takes a moment and must not be cut off."""
        self._ignoring = True

    def handle(self, number: int, _: FrameType | None) -> None:
        """The signal handler."""
        if self._ignoring:
            return
        if self._asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked.set()


@contextmanager
def interruptions() -> Iterator[Interruption]:
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    interruption.install()
    try:
        yield interruption
    finally:
        if _in_main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _in_main_thread() -> bool:
    """Python lets only the main thread take signals."""
    return threading.current_thread() is threading.main_thread()
