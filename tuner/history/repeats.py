"""Configurations that were trained under several seeds: their trials, and the value of each configuration.

The value of a configuration is the mean of its full-length trials, including the first. The spread between seeds is
assumed to be the same for all configurations, and is estimated from all that have several seeds, because each alone has
too few. The standard error of a mean of n seeds is that spread divided by the square root of n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from tuner.history.trial_record import TrialRecord

SPREADS_BELOW = 1.0  # standard errors that are subtracted from a mean when configurations are compared


@dataclass(frozen=True)
class Seeds:
    """The values of the full-length trials of one configuration, in their order."""

    values: tuple[float, ...]

    @cached_property
    def mean(self) -> float:
        """The mean of all values."""
        scale = max(map(abs, self.values)) or 1.0  # so that no sum is too large for a float
        return scale * fmean(value / scale for value in self.values)


class Repeats:
    """Knows which trials share a configuration; `worth(trial)` is the worth of a full-length one, None for others.

    Cheap while no configuration has several.
    """

    def __init__(self, worth: Callable[[TrialRecord], float | None]) -> None:
        self._worth = worth
        self._members: dict[str, list[TrialRecord]] = {}  # by the first one; only if there are several
        self._seeds: dict[str, Seeds | None] = {}
        self._spread: float | None = None
        self._most = 1
        self._known = False

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, first: TrialRecord, again: TrialRecord) -> None:
        """Another trial has the configuration of the first."""
        self._members.setdefault(first.trial, [first]).append(again)
        self.forget()

    def forget(self) -> None:
        """Forget what was computed: values or statuses have changed."""
        self._seeds.clear()
        self._known = False

    def firsts(self) -> list[str]:
        """The first trials of the configurations that have several."""
        return list(self._members)

    def of(self, trial: TrialRecord) -> Sequence[TrialRecord]:
        """All trials of its configuration, the first one first."""
        return self._members.get(trial.repeats or trial.trial, [trial])

    def seeds(self, trial: TrialRecord) -> Seeds | None:
        """The seeds of a trial's configuration; None if none of its trials was trained to its end."""
        first = trial.repeats or trial.trial
        if first not in self._seeds:
            found = [value for one in self.of(trial) if (value := self._worth(one)) is not None]
            self._seeds[first] = Seeds(tuple(found)) if found else None
        return self._seeds[first]

    def count(self, trial: TrialRecord) -> int:
        """How many seeds count for a trial's configuration: those with which it was trained to its end.

        A first trial that early stopping ended counts if another seed was trained to its end: it was one more try. So
        do seeds that failed, if two others count: the value is that of the others.
        """
        seeds, members = self.seeds(trial), self.of(trial)
        if seeds is None:
            return 0
        count = len(seeds.values) + (members[0].status == "stopped")
        return count + sum(one.status == "failed" for one in members) if count > 1 else count

    @property
    def spread(self) -> float | None:
        """The standard deviation between seeds of one configuration; None if none was trained to its end twice."""
        self._look()
        return self._spread

    @property
    def most(self) -> int:
        """The largest number of seeds that count for a configuration; at least 1."""
        self._look()
        return self._most

    def error(self, count: int) -> float | None:
        """The standard error of a mean of this many seeds."""
        return None if self.spread is None else self.spread / math.sqrt(count)

    def _look(self) -> None:
        if not self._known:
            known = [seeds for members in self._members.values() if (seeds := self.seeds(members[0])) is not None]
            self._spread = self._spread_of(known)
            self._most = max((self.count(members[0]) for members in self._members.values()), default=1)
            self._known = True

    @staticmethod
    def _spread_of(known: Sequence[Seeds]) -> float | None:
        freedom = sum(len(seeds.values) - 1 for seeds in known)
        if not freedom:
            return None
        scale = max(abs(value) for seeds in known for value in seeds.values) or 1.0
        squares = sum((value / scale - seeds.mean / scale) ** 2 for seeds in known for value in seeds.values)
        return scale * math.sqrt(squares / freedom)
