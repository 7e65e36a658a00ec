"""The listeners that get each event of a search, in addition to its record."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tuner.history.events import Event, Listener


class Listeners:
    """Tells each listener; one that raises is left out from then on, which `notice` says."""

    def __init__(self, listeners: Iterable[Listener], notice: Callable[[str], None]) -> None:
        self._listeners, self._notice = list(listeners), notice

    def tell(self, event: Event) -> None:
        """An error in a listener must not end a search."""
        for listener in list(self._listeners):
            if not any(listener is known for known in self._listeners):
                continue  # left out while the failure of another one was noted
            try:
                listener.on_event(event)
            except Exception as error:
                self._listeners = [known for known in self._listeners if known is not listener]
                self._notice(f"{type(listener).__name__} raised an error and is not called any more: {error!r}")
