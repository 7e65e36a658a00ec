"""How long epochs take, and how long a trial may take to end its epoch when the search is to end."""

from __future__ import annotations

import time

SHORTEST_ALLOWANCE = 30.0  # seconds that trials have to end their epoch once a limit is reached, or
EPOCHS_ALLOWED = 2  # this many times the longest epoch so far, whichever is more


class EpochTimes:
    """Times the epochs of the trials that run, by the monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # the start or last report of each
        self._longest = 0.0

    @property
    def allowance(self) -> float:
        """Seconds after which a trial that hasn't ended its epoch counts as hanging."""
        return max(SHORTEST_ALLOWANCE, EPOCHS_ALLOWED * self._longest)

    def start(self, trial: str) -> None:
        """The trial begins on a worker."""
        self._since[trial] = time.monotonic()

    def report(self, trial: str) -> None:
        """The trial has ended an epoch, and begins the next one."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since.get(trial, now))
        self._since[trial] = now

    def end(self, trial: str) -> None:
        """The trial is over."""
        self._since.pop(trial, None)
