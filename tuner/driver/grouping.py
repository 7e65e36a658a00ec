"""Which trials share a stay on a worker: those that the worker can train as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np

from tuner.loop.queue import Start
from tuner.space.space import NothingDrawn
from tuner.study.declaration import Study
from tuner.worker.implementation import Implementation, implementation_of

Key = Callable[[dict[str, Any]], str | None]

SAMPLES = 20  # configurations by which a study is found to have some that can be trained together
ROUNDS = 10  # in which a search learns from what came before, as far as its trials go
MOST, UNLIMITED = 100, 8  # trials of a stay, and if no limit says how many there are about
STOPPED_EARLY = 2.0  # as many trials as those that the epochs would train to their end


def most_together(study: Study, workers: int) -> int:
    """How many trials of a study may share a stay, so that the search still has some rounds; 1 if none do.

    None do if no configuration has a key, if how many run at once depends on the memory of each, or if the scheduler
    judges most epochs, so that a stay would be a few steps.
    """
    budget, trials = study.budget, study.trials
    judged = len(study.scheduler.rungs(budget.max_epochs))
    if study.resources.packed or study.resources.strategy or judged > budget.max_epochs / 2:
        return 1
    if not _some_have_keys(study):
        return 1
    if budget.total_epochs is not None:
        trials = min(trials or MOST**2, round(STOPPED_EARLY * budget.total_epochs / budget.max_epochs))
    return UNLIMITED if trials is None else max(1, min(MOST, math.ceil(trials / (ROUNDS * max(1, workers)))))


def _some_have_keys(study: Study) -> bool:
    implementation = type(implementation_of(study.declared_trial))
    if implementation.together is Implementation.together:  # nothing is drawn, which a constraint may make slow
        return False
    key = key_of(study)
    try:
        configs = study.search_space.several(SAMPLES, np.random.default_rng(study.seed))
    except NothingDrawn:  # the search says so
        return False
    return any(key(config) is not None for config in configs)


def key_of(study: Study) -> Key:
    """What configurations of a study share that a worker can train together; None for one that it trains alone."""
    trial = study.declared_trial
    return partial(implementation_of(trial).together, trial)


class Together:
    """Trials that the loop has started and no worker has yet; those of the same `key` share a stay of at most `most`.

    A trial without a key has a stay of its own, and so has a suspect: one of a stay that failed or lost its worker.

    Attributes:
        shares: whether stays may have several trials
    """

    def __init__(self, key: Key, most: int) -> None:
        self._key, self.most, self.shares = key, most, most > 1
        self._waiting: dict[str, list[Start]] = {}
        self._alone: set[str] = set()  # keys of those that wait alone
        self._suspects: set[str] = set()

    @property
    def takes_more(self) -> bool:
        """Whether others should wait with those that do: the next stay isn't full, and none waits for one alone."""
        return not self._alone and sum(map(len, self._waiting.values())) < self.most

    @property
    def waiting(self) -> list[str]:
        """The trials that wait."""
        return [start.trial for starts in self._waiting.values() for start in starts]

    def add(self, start: Start) -> None:
        """A trial waits for its stay."""
        own = start.trial in self._suspects or start.fresh or start.refit_epochs is not None
        key = None if own or self.most == 1 else self._key(start.config)
        if key is None:
            key = f"alone {start.trial}"
            self._alone.add(key)
        self._waiting.setdefault(key, []).append(start)

    def take(self, running: Collection[str]) -> list[Start]:
        """The trials of the next stay, those that have waited longest, as far as they still run; none if none wait."""
        while self._waiting:
            key = next(iter(self._waiting))
            waiting = [start for start in self._waiting.pop(key) if start.trial in running]
            self._alone.discard(key)
            if left := waiting[self.most :]:
                self._waiting[key] = left
            if waiting:
                return waiting[: self.most]
        return []

    def suspect(self, *trials: str) -> None:
        """Each of them may have ended their stay: the next time it has one of its own."""
        self._suspects.update(trials)

    def is_suspect(self, trial: str) -> bool:
        """Whether the trial has stays of its own from now on."""
        return trial in self._suspects

    def separate(self) -> None:
        """The worker can't train them together after all: from now on each has a stay of its own."""
        self.most = 1
        waiting, self._waiting = [start for starts in self._waiting.values() for start in starts], {}
        for start in waiting:
            self.add(start)
