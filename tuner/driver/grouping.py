"""Which trials share a stay on a worker: those that the worker can train as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tuner.loop.queue import Start
from tuner.study.declaration import Study

ROUNDS = 10  # in which a search learns from what came before, as far as its trials go
MOST, UNLIMITED = 100, 8  # trials of a stay, and if no limit says how many there are about
STOPPED_EARLY = 2.0  # as many trials as those that the epochs would train to their end


def most_together(study: Study, workers: int) -> int:
    """How many trials of a study may share a stay, so that the search still has some rounds; 1 if none do.

    None do if how many run at once depends on the memory of each.
    """
    if study.resources.packed is not None or study.resources.strategy is not None:
        return 1
    trials, epochs = study.trials, study.budget.total_epochs
    if epochs is not None:
        trials = min(trials or MOST**2, round(STOPPED_EARLY * epochs / study.budget.max_epochs))
    return UNLIMITED if trials is None else max(1, min(MOST, math.ceil(trials / (ROUNDS * max(1, workers)))))


class Together:
    """Trials that the loop has started and no worker has yet; those of the same `key` share a stay of at most `most`.

    A trial without a key has a stay of its own, and so has a suspect: one of a stay that lost its worker.
    """

    def __init__(self, key: Callable[[Mapping[str, Any]], str | None], most: int) -> None:
        self._key, self.most = key, most
        self._waiting: dict[str, list[Start]] = {}
        self._suspects: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, start: Start) -> None:
        """A trial waits for its stay."""
        own = start.trial in self._suspects or start.fresh or start.refit_epochs is not None
        key = None if own or self.most == 1 else self._key(start.config)
        self._waiting.setdefault(f"alone {start.trial}" if key is None else key, []).append(start)

    def take(self) -> list[Start]:
        """The trials of the next stay, those that have waited longest; none if none wait."""
        if not self._waiting:
            return []
        key = next(iter(self._waiting))
        waiting = self._waiting.pop(key)
        if left := waiting[self.most :]:
            self._waiting[key] = left
        return waiting[: self.most]

    def suspect(self, *trials: str) -> None:
        """Each of them may have ended their worker: the next time it has a stay of its own."""
        self._suspects.update(trials)

    def separate(self) -> None:
        """The worker can't train them together after all: from now on each has a stay of its own."""
        self.most = 1
        waiting, self._waiting = [start for starts in self._waiting.values() for start in starts], {}
        for start in waiting:
            self.add(start)
