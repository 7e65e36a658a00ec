"""A thread of the server that works until the server ends."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ServerThread:
    """Calls `work` once, which must return soon after `ending`; `name` is the thread's."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=work, name=name, daemon=True)

    @property
    def ending(self) -> bool:
        """Whether the thread was asked to end."""
        return self._ended.is_set()

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def rest(self, seconds: float) -> bool:
        """Wait so many seconds, or until it is asked to end; returns whether it was."""
        return self._ended.wait(seconds)

    def end(self, wake: Callable[[], None] = lambda: None) -> None:
        """Ask it to end, and wait until it has; `wake` ends its own wait."""
        self._ended.set()
        wake()
        if self._thread.is_alive():
            self._thread.join()
