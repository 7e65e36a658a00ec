"""The listeners of changes: the streams of the web part, and other subscribers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from tuner.service.model import Change

Listener = Callable[[Change], None]
_log = logging.getLogger(__name__)


class Listeners:
    """Functions that are called with each change; may be used from any thread."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._changing = threading.Lock()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call this one, too; returns a function that removes it."""
        with self._changing:
            self._listeners.append(listener)

        def leave() -> None:
            with self._changing, suppress(ValueError):
                self._listeners.remove(listener)

        return leave

    def tell(self, change: Change) -> None:
        """Call each of them; an error of one doesn't affect the others."""
        with self._changing:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener(change)
            except Exception:
                _log.exception("a listener failed")
