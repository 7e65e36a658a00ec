"""Whole searches by a clock that only they know: real loop, search algorithm and early stopping, simulated training.

Nothing is trained and nobody waits: a search of an hour takes the seconds that its decisions take.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner import Study
from tuner.history.events import Event
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision
from tuner.storage.folder import LocalFolder

Curve = Callable[[dict[str, Any], int, np.random.Generator], float]


@dataclass(frozen=True)
class Times:
    """What takes how long, in seconds: medians, and the spread of their logarithms.

    `opening` passes until a worker can begin, `start` whenever it begins with a trial; `epoch` gives what an epoch of a
    configuration takes. After the last trial the winner is scored and the report written: `conclusion`.
    """

    epoch: Callable[[dict[str, Any]], float] = lambda config: 10.0
    opening: float = 5.0
    start: float = 1.0
    conclusion: float = 5.0
    spread_of_trials: float = 0.1
    spread: float = 0.1


@dataclass
class VirtualSearch:
    """A search of `study` by `workers`; `run` gives its events, whose times are seconds since it began.

    A trial fails with the chance `failing` at each of its epochs.
    """

    study: Study
    curve: Curve
    times: Times
    workers: int = 2
    seed: int = 0
    failing: float = 0.0
    clock: float = 0.0
    events: list[Event] = field(default_factory=list)

    def run(self) -> list[Event]:
        """Everything that happened, with `run_ended` when the report is written."""
        self._generator = np.random.default_rng([self.seed, 17])
        self._waiting: list[tuple[float, int, Start, int, float]] = []
        self._begun: set[int] = set()
        self._count = 0
        with _folder() as folder:
            self._loop = SearchLoop(self.study, LocalFolder(folder), concurrency=self.workers, listeners=[self])
            self._fill()
            while self._waiting:
                self.clock, _, start, epoch, pace = heapq.heappop(self._waiting)
                self._report(start, epoch, pace)
                self._fill()
            self._loop.end()
            self._loop.close()
        self.clock += self.times.conclusion * self._noise(self.times.spread)
        self.events.append({"event": "run_ended", "time": self.clock})
        return self.events

    def on_event(self, event: Event) -> None:
        """An event of the loop, which happens now."""
        self.events.append({**event, "time": self.clock})

    def _noise(self, spread: float) -> float:
        return float(np.exp(spread * self._generator.standard_normal()))

    def _fill(self) -> None:
        for _ in range(10 * self.workers):  # an action may be none that runs
            start = self._loop.next_action()
            if start is not None:
                self._begin(start)
            elif self._loop.finished or len(self._loop.running) >= self.workers:
                return

    def _begin(self, start: Start) -> None:
        reached = self._loop.record.trials[start.trial].epoch
        own = np.random.default_rng([self.seed, start.number])
        pace = self.times.epoch(start.config) * float(np.exp(self.times.spread_of_trials * own.standard_normal()))
        wait = self.times.start * self._noise(self.times.spread)
        if len(self._begun) < self.workers:  # a worker's own start
            self._begun.add(len(self._begun))
            wait += self.times.opening * self._noise(self.times.spread)
        placed = self.clock + wait
        self._push(placed, start, 0, pace)
        self._push(placed + pace * self._noise(self.times.spread), start, reached + 1, pace)

    def _push(self, at: float, start: Start, epoch: int, pace: float) -> None:
        self._count += 1
        heapq.heappush(self._waiting, (at, self._count, start, epoch, pace))

    def _report(self, start: Start, epoch: int, pace: float) -> None:
        if not epoch:
            self._loop.placed(start.trial, host="here", pid=1, devices=["1 CPU"], gpus=[])
            return
        if self._generator.random() < self.failing:
            self._loop.failed(start.trial, "error", "ValueError: simulated")
            return
        own = np.random.default_rng([self.seed, start.number, epoch])
        value = self.curve(start.config, epoch, own)
        saved = [epoch]
        decision = self._loop.report(start.trial, epoch, {self.study.metric: value}, saved=saved)
        if decision is Decision.CONTINUE:
            self._push(self.clock + pace * self._noise(self.times.spread), start, epoch + 1, pace)


@contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
