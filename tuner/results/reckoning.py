"""The time left for displays, which may ask for it at any moment; it is computed rarely."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tuner.history.pace import still_trials
from tuner.history.records import RunRecord
from tuner.results.time_left import Ahead, TimeLeft, time_left

SECONDS = 1.0  # the least between two computations
SHARE = 0.02  # the most of the time spent on them: a search may end a hundred trials a second
AGED = 0.1  # of the time left: a result older than that is replaced, also where the first one, still cold, took long


@dataclass(frozen=True)
class _Reckoned:
    """A result, its time in seconds since 1970, and for how many seconds it is good enough."""

    left: TimeLeft
    at: float
    holds: float


class Reckoning:
    """The time left of one search; between computations the last result counts down with the clock."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._last: _Reckoned | None = None
        self._still: tuple[float, dict[str, float]] = (0.0, {})  # when it was looked for, and what was found

    def forget(self) -> None:
        """Forget the last result: the limits have changed."""
        self._last = None

    def left(self, record: RunRecord, ahead: Ahead, now: float) -> TimeLeft | None:
        """How long the search still takes from `now` on (seconds since 1970); None if that can't be known."""
        last = self._last
        if record.active_since is not None and last is not None and 0 <= now - last.at < last.holds:
            return last.left.after(now - last.at)
        begun = time.thread_time()
        left = time_left(record, ahead, now)
        spent = time.thread_time() - begun
        self._last = None if left is None else _Reckoned(left, now, self._holds(left, spent))
        return left

    def still(self, record: RunRecord, now: float) -> dict[str, float]:
        """What `still_trials` finds, which is looked for as seldom."""
        if not 0 <= now - self._still[0] < self._seconds:
            self._still = now, still_trials(record, now)
        return self._still[1]

    def _holds(self, left: TimeLeft, spent: float) -> float:
        """How long a result that took so many seconds of computing is kept."""
        return max(self._seconds, min(spent / SHARE, AGED * left.middle))
