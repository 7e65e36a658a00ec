"""Answers about finished runs, stored for the next server, so that their pages need no computation.

An answer is found by the digest of the log from which it was made, and of the other files that it depends on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from pydantic import TypeAdapter, ValidationError

from tuner.machine.version import __version__
from tuner.service.kept_files import Kept
from tuner.service.web.viewed_runs import Runs

T = TypeVar("T")
WORTH_SECONDS = 0.05  # of CPU time: cheaper answers are computed again
MOST_ANSWERS = 200  # the last used ones
REST, LONGEST_REST = 10.0, 60.0  # how old a heavy answer on a search may be: times the time it took; seconds


class Answers:
    """By study and question; may be used from several threads."""

    def __init__(self, runs: Runs, folder: Path, free_bytes: int = 0) -> None:
        self._runs, self._kept = runs, Kept(folder, free_bytes, MOST_ANSWERS)
        self._lately: dict[tuple[int, str], tuple[float, object]] = {}
        self._locks: WeakValueDictionary[tuple[int, str], threading.Lock] = WeakValueDictionary()
        self._making = threading.Lock()

    def get(self, study: int, question: str, kind: TypeAdapter[T], work: Callable[[], T], *, rests: bool = False) -> T:
        """The answer: computed by `work` now, or stored for the same run before.

        While a search runs, every question is answered anew each time. A heavy answer (`rests`) is reused for ten times
        as long as it took, at most a minute.
        """
        with self._making:
            lock = self._locks.setdefault((study, question), threading.Lock())
        with lock:  # others with the same question wait for this answer
            stamp = self._runs.stamp(study)
            if stamp is None:
                return self._lately_found(study, question, work) if rests else work()
            return self._found(study, question, stamp, kind, work)

    def _found(self, study: int, question: str, stamp: str, kind: TypeAdapter[T], work: Callable[[], T]) -> T:
        key = "\0".join((__version__, question, stamp))
        content = self._kept.find(key)
        if content is not None:
            try:
                return kind.validate_json(content)
            except ValidationError:
                self._kept.forget(key)
        begun = time.thread_time()
        found = work()
        if time.thread_time() - begun > WORTH_SECONDS:
            self._kept.keep(key, [kind.dump_json(found)], lambda: self._runs.stamp(study) == stamp)
        return found

    def _lately_found(self, study: int, question: str, work: Callable[[], T]) -> T:
        until, found = self._lately.get((study, question), (0.0, None))
        if time.monotonic() < until:
            return found  # type: ignore[return-value]
        begun = time.thread_time()
        answer = work()
        now = time.monotonic()
        rest = min(LONGEST_REST, REST * (time.thread_time() - begun))
        self._lately = {one: kept for one, kept in self._lately.items() if kept[0] > now}
        self._lately[study, question] = (now + rest, answer)
        return answer
