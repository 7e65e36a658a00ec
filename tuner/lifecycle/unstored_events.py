"""Events that a driver sends only to its listeners: they aren't stored, because nobody needs them later."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from tuner.history.events import Listener

CONCLUDING = "concluding"
OPENING = "opening"


def tell(listeners: Iterable[Listener], kind: str, **fields: Any) -> None:
    """Send the listeners an event that isn't stored."""
    event = {"event": kind, "time": time.time(), **fields}
    for listener in listeners:
        with suppress(Exception):  # a failing listener is left out, with a notice, at the next stored event
            listener.on_event(event)
