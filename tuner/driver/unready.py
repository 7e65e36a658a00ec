"""Trials that Ray gave to a used worker which was not ready: the code of its last trial goes on or has spoiled it, or
it has died.

Such a trial begins on another worker. For the loop it is on its way all the time, so nothing of it is lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayTaskError

from tuner.driver.ray_inside.controller import RayTrial, unstage
from tuner.errors import WorkerSpent
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop

LONG_SECONDS = 1.0  # shorter waits are not told of


class Unready:
    """Stays of trials that begin again; `in` says whether one of Ray's trials waits for that."""

    def __init__(self, loop: SearchLoop) -> None:
        self._loop, self._waiting = loop, list[RayTrial]()
        self._starts: dict[str, tuple[Sequence[Start], float]] = {}  # by the stay's first trial; and when
        self._waited: dict[str, float] = {}  # seconds
        self._told = {""}

    def __contains__(self, trial: RayTrial) -> bool:
        return trial in self._waiting

    def note(self, starts: Sequence[Start]) -> None:
        """Keep how the loop has started the trials of a stay."""
        self._starts[starts[0].trial] = starts, time.monotonic()

    def forget(self, trial: str) -> None:
        """A trial has ended."""
        self._starts.pop(trial, None)

    def placed(self, trial: str, *, waited: float, **where: Any) -> dict[str, Any]:
        """Where a trial has begun, and how many seconds it waited for the end of other trials, if that was long."""
        waited += self._waited.pop(trial, 0.0)
        return where | ({"waited": round(waited, 3)} if waited >= LONG_SECONDS else {})

    def take(self, controller: Any, trial: RayTrial) -> bool:
        """Whether a trial that failed begins again; the user is then told why."""
        if controller is None or not unstage(controller, trial) or not self._going_on(trial):
            return False
        error = trial.last_error
        cause = error.cause if isinstance(error, RayTaskError) else None
        died = f"a worker died before trial {trial.tuner_id} began there, so the trial begins on another one"
        if (why := str(cause) if isinstance(cause, WorkerSpent) else died) not in self._told:
            self._told.add(why)
            self._loop.notice(why)
        self._waiting.append(trial)
        since = time.monotonic() - self._starts[trial.tuner_id][1]
        self._waited[trial.tuner_id] = self._waited.get(trial.tuner_id, 0.0) + since
        return True

    def next(self) -> list[Start]:
        """What a free worker should begin again, without trials that the search has ended meanwhile."""
        waiting = [starts for trial in self._waiting if (starts := self._going_on(trial))]
        self._waiting = [trial for trial in self._waiting if self._going_on(trial)][1:]
        return waiting[0] if waiting else []

    def _going_on(self, trial: RayTrial) -> list[Start]:
        starts, _ = self._starts.get(trial.tuner_id, ((), 0.0))
        return [start for start in starts if start.trial in self._loop.running]
