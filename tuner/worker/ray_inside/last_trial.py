"""The end of a trial's code in a worker that then runs the next trial.

A trial that the search has ended is told so by a SystemExit, which Ray raises in its `report` when the worker gets its
next trial. A worker whose last trial doesn't end, or has spoiled the process, is replaced.
"""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

from tuner.errors import WorkerSpent

if TYPE_CHECKING:
    from ray.train._internal.session import _TrainSession

SECONDS_TO_END = 120.0  # for clean-up after SystemExit
LOOK_SECONDS = 0.1  # between checks of whether the code goes on
CATCHES = "it catches SystemExit: write `except Exception:` in place of `except:`"


class LastTrial:
    """The trial whose code this process runs, or ran last."""

    def __init__(self) -> None:
        self.trial, self._goes_on, self._took = "", threading.Event(), 0.0
        self.spoilt: str | None = None

    def begin(self, trial: str) -> float:
        """The code of a trial begins; returns how many seconds it waited for the end of the last one's."""
        took, self._took = self._took, 0.0
        self.trial, self._goes_on = trial, threading.Event()
        return took

    def spoil(self, why: str, fix: str) -> None:
        """The worker is of no use for another trial; `why` and `fix` are clauses for the user."""
        self.spoilt = f"{why}, so its worker was replaced; {fix}"

    def change(self, what: str) -> None:
        """The worker is of no use for another trial, because of `what` the last one changed."""
        self.spoil(f"a trial changed {what} in its process", "put it back at the trial's end")

    def hold(self) -> NoReturn:
        """Hold the calling thread until the process ends, because its code has ignored the end of the trial."""
        self._goes_on.set()
        while True:
            threading.Event().wait()

    def end(self, ray: _TrainSession) -> None:
        """Tell the trial's code that it has ended, and wait until it returns.

        Raises WorkerSpent, which names the trial, if the code goes on, or takes longer than SECONDS_TO_END; and if the
        worker is spoiled.
        """
        ray.stop_event.set()
        ray.continue_lock.release()
        began = time.monotonic()
        while ray.training_thread.is_alive():
            if self._goes_on.is_set():
                raise WorkerSpent(self._went_on("", CATCHES))
            if time.monotonic() - began > SECONDS_TO_END:
                why = "it catches SystemExit, or its clean-up takes longer"
                raise WorkerSpent(self._went_on(f" for {SECONDS_TO_END:g} seconds", why))
            ray.training_thread.join(LOOK_SECONDS)
        self._took = time.monotonic() - began
        if self.spoilt is not None:
            raise WorkerSpent(self.spoilt)

    def _went_on(self, how_long: str, why: str) -> str:
        return (
            f"the code of trial {self.trial} went on{how_long} after the trial was ended, so its worker was replaced; "
            f"{why}"
        )


LAST = LastTrial()  # of this worker process


def session_of_ray() -> _TrainSession:
    """Ray's session of the trial that this worker runs, or ran last."""
    from ray.train._internal.session import get_session

    return get_session()


def comes_from_ray(error: BaseException) -> bool:
    """Whether it is the SystemExit of Ray's own `report`, called by the user's code."""
    if not isinstance(error, SystemExit):
        return False
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_globals.get("__name__") == "ray.train._internal.session"
