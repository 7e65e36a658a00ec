"""A search simulated before it starts: early stopping, limits and refit, with made-up results and measured times."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tuner.schedule import Decision
from tuner.study.budget import SECONDS_PER_HOUR
from tuner.study.declaration import Study
from tuner.trial.speed import Speed

MOST_REPORTS = 4_000  # simulated reports; the rest of a longer search is assumed to have the same time per epoch
REPORT_SECONDS = 0.03  # of an epoch in addition to its training: report, decision, checkpoint
SHORTEST = 0.001  # seconds of an epoch

SpeedOf = Callable[[dict[str, Any]], Speed]


@dataclass(frozen=True)
class Rehearsal:
    """One possible course of a search.

    Attributes:
        seconds: from the first trial's start to the last one's end, that of a refit included
        epochs: of all trials, a refit's included
        trials: number of started trials, a refit included
        waiting: the most trials that were paused at once
        whole: whether the simulation reached the end; otherwise only the limit on hours could end the search
    """

    seconds: float
    epochs: int
    trials: int
    waiting: int
    whole: bool


def rehearse(study: Study, workers: int, speed_of: SpeedOf, seed: int) -> Rehearsal:
    """Simulate the search once: configurations are drawn from the space, and each has one value, drawn once.

    Args:
        study: space, scheduler, budget
        workers: trials at once
        speed_of: gives the cost of a configuration's trial
        seed: of the random draws
    """
    return _Play(study, workers, speed_of, np.random.default_rng(seed)).play()


@dataclass
class _Trial:
    config: dict[str, Any]
    speed: Speed
    length: int
    value: float
    epoch: int = 0


@dataclass
class _Play:
    study: Study
    workers: int
    speed_of: SpeedOf
    draw: np.random.Generator
    clock: float = 0.0
    epochs: int = 0
    trials: dict[str, _Trial] = field(default_factory=dict)
    _busy: list[tuple[float, str]] = field(default_factory=list)  # when each epoch ends
    _ready: dict[str, float] = field(default_factory=dict)  # when work that is done only once will be finished
    _paused: set[str] = field(default_factory=set)
    _waiting: int = 0  # the most that were paused at once

    def __post_init__(self) -> None:
        study, budget = self.study, self.study.budget
        self._left = math.inf if study.trials is None else study.trials
        self._points = [dict(point) for point in study.starting_points]
        self._stopper = study.scheduler.build(
            mode="max", max_epochs=budget.max_epochs, can_pause=True, trials=study.trials
        )
        self._most_seconds = math.inf if budget.hours is None else budget.hours * SECONDS_PER_HOUR
        kept = budget.max_epochs if study.refit else 0  # for the refit: the winner mostly has full length
        self._most_epochs = math.inf if budget.total_epochs is None else max(1, budget.total_epochs - kept)

    def play(self) -> Rehearsal:
        """Simulate the search, and after it the refit if the study declares one."""
        found = self._search()
        return found if self.study.refit is None or not found.whole else self._refitted(found)

    def _refitted(self, search: Rehearsal) -> Rehearsal:
        """The search with the winner trained again, alone and as long as before; a limit on time holds for both."""
        winner = max(self.trials.values(), key=lambda trial: (trial.epoch, trial.value))
        epochs = sum(max(SHORTEST, winner.speed.epoch(number)) for number in range(1, winner.epoch + 1))
        seconds = winner.speed.start_seconds + epochs * (self.study.declared_trial.refit_share or 1.0)
        late = min(search.seconds, max(0.0, search.seconds + seconds - self._most_seconds))  # the search ends sooner
        played = 1 - late / search.seconds if search.seconds else 1.0
        return replace(
            search,
            seconds=search.seconds - late + seconds,
            epochs=round(search.epochs * played) + winner.epoch,
            trials=math.ceil(search.trials * played) + 1,
        )

    def _search(self) -> Rehearsal:
        """Simulate to a limit, to the end of all trials, or for MOST_REPORTS reports."""
        self._fill()
        while self._busy:
            self.clock, name = heapq.heappop(self._busy)
            self.epochs += 1
            if self._over:
                last = max([self.clock, *(until for until, _ in self._busy)])  # running epochs are finished
                return self._course(last, self.epochs + len(self._busy))
            if self.epochs >= MOST_REPORTS:
                return self._beyond()
            self._arrive(name)
            self._fill()
        return self._course(self.clock, self.epochs)

    def _course(self, seconds: float, epochs: int, longer: float = 1.0, *, whole: bool = True) -> Rehearsal:
        """What was simulated; of a search that is so many times `longer`, trials in proportion."""
        trials, waiting = round(len(self.trials) * longer), round(self._waiting * longer)
        return Rehearsal(seconds, epochs, trials, waiting, whole)

    @property
    def _over(self) -> bool:
        return self.clock >= self._most_seconds or self.epochs + len(self._busy) >= self._most_epochs

    def _beyond(self) -> Rehearsal:
        """The length of a search that is longer than the simulation, as far as its limits define it."""
        each = self.clock / self.epochs
        share = max(1.0, self._left / len(self.trials)) if math.isfinite(self._left) else math.inf
        epochs = min(self._most_epochs, self.epochs * share, self._most_seconds / each)
        if math.isinf(epochs):
            return self._course(math.inf, self.epochs, whole=False)
        return self._course(epochs * each, round(epochs), epochs / self.epochs)

    def _fill(self) -> None:
        while len(self._busy) < self.workers and self.epochs + len(self._busy) < self._most_epochs:
            name = self._stopper.resumable()
            if name is None:
                if self._left < 1:
                    return
                name = self._begin()
            self._paused.discard(name)
            self._go_on(name, self._start(self.trials[name].speed))

    def _begin(self) -> str:
        config = self._points.pop(0) if self._points else {}
        config = self.study.search_space.complete(config, self.draw)
        length = min(self.study.budget.max_epochs, int(config.get("epochs") or self.study.budget.max_epochs))
        self._left -= 1
        name = str(len(self.trials)).zfill(5)
        self.trials[name] = _Trial(config, self.speed_of(config), length, float(self.draw.random()))
        self._stopper.start(name)
        self._stopper.more_coming(self._left >= 1)
        return name

    def _start(self, speed: Speed) -> float:
        """Seconds until the first epoch begins; trials that start while features are computed wait for them."""
        ready = self.clock + speed.start_seconds
        for name, seconds in speed.once:
            ready = max(ready, self._ready.setdefault(name, ready + seconds))
        return max(0.0, ready - self.clock, speed.start_seconds)

    def _go_on(self, name: str, wait: float) -> None:
        trial = self.trials[name]
        epoch = max(SHORTEST, trial.speed.epoch(trial.epoch + 1)) + REPORT_SECONDS
        heapq.heappush(self._busy, (self.clock + wait + epoch, name))

    def _arrive(self, name: str) -> None:
        trial = self.trials[name]
        trial.epoch += 1
        decision = self._stopper.report(name, trial.epoch, trial.value)
        if trial.epoch >= trial.length or decision is Decision.STOP:
            self._stopper.end(name)
        elif decision is Decision.CONTINUE:
            self._go_on(name, 0.0)
        else:
            self._paused.add(name)
        self._paused.difference_update(self._stopper.eliminated())
        self._waiting = max(self._waiting, len(self._paused))
