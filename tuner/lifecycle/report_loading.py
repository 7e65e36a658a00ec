"""Loads what the report needs while a search waits for its last trials or for the winner's score, not after them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from tuner.history.events import Event


class ReportLoading:
    """Listens to a search of so many `trials`; begins when one ends and all have started, as `started()` says."""

    def __init__(self, trials: int | None, started: Callable[[], int]) -> None:
        self._trials, self._started = trials, started

    def on_event(self, event: Event) -> None:
        """Begin if the last trials run."""
        if event["event"] == "trial_ended" and self._trials and self._started() >= self._trials:
            begin_loading(self._started())


@cache
def begin_loading(trials: int) -> threading.Thread:
    """Load in a thread what a report of so many trials needs; the process doesn't wait for its end."""
    thread = threading.Thread(target=_load, args=[trials], name="tuner-report", daemon=True)
    thread.start()
    return thread


def _load(trials: int) -> None:
    with suppress(Exception):  # the report is written later, and says then what is wrong
        from tuner.html_report.elements import load

        load(trials)
