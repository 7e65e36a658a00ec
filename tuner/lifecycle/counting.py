"""Keeps run.json up to date while a search runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tuner.history.events import Event
from tuner.history.run_info import write_info
from tuner.storage.folder import Folder

SECONDS = 5.0  # between two writes, at least


class InfoWriter:
    """Listens to a search, and writes into run.json how many trials have which status, as `counts()` says."""

    def __init__(self, folder: Folder, info: dict[str, Any], counts: Callable[[], Mapping[Any, int]]) -> None:
        self._folder, self._info, self._counts = folder, info, counts
        self._written = time.monotonic()

    def on_event(self, event: Event) -> None:
        """Write run.json if it is out of date."""
        if time.monotonic() - self._written > SECONDS and event["event"] == "trial_ended":
            self._written = time.monotonic()
            self._info["trials"] = self._counts()
            write_info(self._folder, self._info)
