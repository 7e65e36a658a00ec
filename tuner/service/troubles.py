"""Handles errors of one study: others go on, its owner sees them, and the step is repeated with longer waits."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tuner.errors import TunerError, describe_error
from tuner.service.database import Database, audit, studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import State

WAITS = (1.0, 5.0, 30.0, 60.0)  # seconds before a step that failed unexpectedly is tried again; the last one stays
WARN_SECONDS = 60.0
# In other states the reason says what a user wanted.
_EXPLAINED = (State.CHECKING, State.QUEUED, State.STARTING, State.RUNNING)
_log = logging.getLogger(__name__)
Tell = Callable[[int, Literal["state", "progress"]], None]


@dataclass(frozen=True)
class Trouble:
    """A step that failed unexpectedly: the reason, how often, and until when it isn't tried again."""

    words: str
    times: int
    until: float  # by a monotonic clock


class Troubles:
    """Failures by study and step, with the step in words: "read its run". Only one thread at a time handles a study."""

    def __init__(self, database: Database, tell: Tell, clock: Callable[[], float] = time.time) -> None:
        self._database, self._tell, self._clock = database, tell, clock
        self._standing: dict[tuple[int, str], Trouble] = {}
        self._warned: dict[tuple[int, str], float] = {}

    def guarded(
        self,
        study: int,
        step: str,
        work: Callable[[], None],
        expected: tuple[type[Exception], ...] = (OSError, TunerError),
    ) -> None:
        """Do a step for a study, unless it failed a moment ago. Never raises.

        An `expected` error may be gone at the next pass, and is only logged as a warning.
        """
        if self.rests(study, step):
            return
        try:
            work()
        except ServiceError as error:
            if error.code is not Code.CONFLICT:  # somebody changed the study meanwhile: the next pass sees that
                self.warn(study, str(error))
        except expected as error:
            self.warn(study, describe_error(error))
        except Exception as error:
            self._failed(study, step, error)
            return
        self._standing.pop((study, step), None)

    def tried(self, study: int, step: str, work: Callable[[], None]) -> None:
        """Do a step that isn't repeated. Never raises."""
        try:
            work()
        except Exception:
            _log.exception("study %d: the server failed to %s", study, step)

    def rests(self, study: int, step: str) -> bool:
        """Whether a step failed a moment ago and has to wait."""
        known = self._standing.get((study, step))
        return known is not None and time.monotonic() < known.until

    def of(self, study: int) -> str | None:
        """The sentence for its owner about the steps that fail now."""
        for (one, step), trouble in list(self._standing.items()):
            if one == study:
                return _told(step, trouble.words)
        return None

    def forget(self, study: int) -> None:
        """Forget the failures of a driver that has ended."""
        for key in [key for key in list(self._standing) if key[0] == study]:
            self._standing.pop(key, None)

    def warn(self, study: int, problem: str) -> None:
        """Write into the server's log, at most once a minute, because the next pass may find the same."""
        now = time.monotonic()
        if now > self._warned.get((study, problem), 0.0):
            self._warned = {known: until for known, until in self._warned.items() if until > now}
            self._warned[study, problem] = now + WARN_SECONDS
            _log.warning("study %d: %s", study, problem)

    def _failed(self, study: int, step: str, error: Exception) -> None:
        known, words = self._standing.get((study, step)), describe_error(error)
        times = 1 if known is None else known.times + 1
        until = time.monotonic() + WAITS[min(times, len(WAITS)) - 1]
        self._standing[study, step] = Trouble(words, times, until)
        if known is None or known.words != words:
            _log.error("study %d: the server failed to %s", study, step, exc_info=error)
        if known is None:
            self._say(study, _told(step, words))

    def _say(self, study: int, reason: str) -> None:
        """Tell its owner, if no other reason is more important, and write it into the study's history."""
        try:
            with self._database.changing() as connection:
                if studies.get(connection, study).state in _EXPLAINED:
                    studies.update(connection, study, reason=reason)
                audit.write(connection, self._clock(), None, "trouble", study, reason=reason)
        except (sqlite3.Error, ServiceError) as error:
            self.warn(study, describe_error(error))
            return
        self._tell(study, "state")


def _told(step: str, words: str) -> str:
    return f"the server failed to {step} and tries again by itself: {words}"
