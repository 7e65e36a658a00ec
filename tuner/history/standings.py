"""The ranking of a run's trials: the value of each, and which is ahead; updated with each event.

A trial that was trained to its end ranks by its worth (`tuner.history.worth`), any other by its best value, which luck
makes too good. So fully trained trials rank above the others, with two exceptions: trials that are clearly better,
whose values over the last half of their epochs are on average better than anything that a fully trained one reported;
and trials that ended the search because they reached its target. If trials have too few epochs for a mean, all rank by
their best values, trained to their end or not. Trials of one configuration with several seeds rank
together, by the mean of their worths (`tuner.history.repeats`). As soon as a configuration has several, only those with
as many seeds as any other can win: they rank above all others, because the best of many single values was lucky. Those
that have a better value from fewer seeds are `challengers`: they are told of, and raced or confirmed. The best trial of
a configuration whose network was saved stands for the others.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tuner.history.repeats import SPREADS_BELOW, Repeats
from tuner.history.trial_record import TrialRecord
from tuner.history.worth import Worth, late_half, of_full_length, of_shortened

TARGET = "target"  # the limit that ends trials because one reached it
Rank = tuple[int, float, int, bool, float, int]  # greater is better
CONFIRMED = 3  # the first part of the rank of a configuration that has as many seeds as any other, and several


@dataclass(frozen=True)
class Standing:
    """One configuration in the order of a run.

    Attributes:
        trial: stands for the configuration: its network would ship
        worth: the value by which the configuration is compared, and its evidence: epochs, seeds and error
    """

    trial: TrialRecord
    worth: Worth

    @property
    def value(self) -> float:
        """The value by which the configuration is compared."""
        return self.worth.value


class Standings:
    """The part of a run's record that ranks its trials by their values of one metric."""

    def __init__(self, metric: str, mode: str) -> None:
        self.metric, self.mode = metric, mode
        self.trials: dict[str, TrialRecord] = {}
        self._sign = 1.0 if mode == "max" else -1.0
        self._bests: dict[str, tuple[int, float]] = {}
        self._worths: dict[str, Worth] = {}  # of those trained to their end
        self._by_worth: list[tuple[float, int, str]] = []  # the same, the best first: value times the sign, number, id
        self._averaged = False  # whether one of the worths is a mean of several epochs
        self._highest = -math.inf  # value that a fully trained trial reported, times the sign
        self._repeats = Repeats(lambda trial: worth.value if (worth := self._worths.get(trial.trial)) else None)
        self._several: list[tuple[Rank, Standing]] | None = None  # of configurations that have several; None: unknown
        self._leader = _Leader(self, lambda trial: trial.status != "failed")
        self._leader_ended = _Leader(self, lambda trial: trial.status in ("completed", "stopped"))
        self._reported = _Leader(self, lambda trial: trial.status != "failed", by=self._by_best)
        self._leaders = (self._leader, self._leader_ended, self._reported)

    def _add_repeat(self, first: TrialRecord, again: TrialRecord) -> None:
        """A trial has begun that trains the first one's configuration under another seed."""
        self._repeats.add(first, again)
        self._rank_again(again)

    def _take_report(self, trial: TrialRecord, epoch: int, value: float | None, *, again: bool) -> None:
        """The trial has reported; `again` if it had reported that epoch before, `value` None if it isn't a number."""
        if again:
            found = trial.values(self.metric)
            if found:
                worth = of_shortened(found, self.mode)
                self._bests[trial.trial] = worth.epoch, worth.value
            else:
                self._bests.pop(trial.trial, None)
            self._rank_again(trial)
        elif value is not None:
            best = self._bests.get(trial.trial)
            is_better = best is None or self._sign * value > self._sign * best[1]
            if is_better:
                self._bests[trial.trial] = epoch, value
            if trial.trial in self._worths:
                self._rank_again(trial)
            elif best is None or is_better or (self._worths and self._sign * best[1] > self._highest):
                self._compare(trial)  # whether it is clearly better may have changed, too

    def _rank_again(self, trial: TrialRecord) -> None:
        """The trial's values or status may have changed."""
        name, had_worth = trial.trial, trial.trial in self._worths
        is_full = trial.status == "completed" and name in self._bests
        self._set_worth(trial, of_full_length(trial.values(self.metric), self.mode) if is_full else None)
        if is_full:
            if not self._averaged:
                self._look_for_means()
            self._raise_highest(max(self._highest, self._sign * self._bests[name][1]))
        elif had_worth:
            self._look_for_means()
            self._raise_highest(max((self._sign * self._bests[t][1] for t in self._worths), default=-math.inf))
        several = len(self._repeats.of(trial)) > 1
        if several or had_worth or name in self._worths:
            self._repeats.forget()
        if several:  # the spread between seeds, and the largest number of them, affect all
            self._look_again()
        self._compare(trial)

    def best_report_of(self, trial: str) -> tuple[int, float] | None:
        """Epoch and value of the trial's best report, the earlier of equals."""
        return self._bests.get(trial)

    def best_of(self, trial: str) -> tuple[int, float] | None:
        """A trial's result: the epoch whose network stands for it, and the value by which trials are compared.

        For a trial trained to its end the value is a mean, see `worth_of`; for others the best one.
        """
        worth = self.worth_of(trial)
        return None if worth is None else (worth.epoch, worth.value)

    def worth_of(self, trial: str) -> Worth | None:
        """What the trial is worth: value and epoch, the epochs that the value is the mean of, and its error.

        None while it has reported no number.
        If the network of its epoch was not saved (a function that ends early can't know which epoch is the last),
        another saved one stands for the trial: that of its best epoch, or the newest.
        """
        best, saved = self._bests.get(trial), self.trials[trial].checkpoints
        if best is None:
            return None
        worth = self._worths.get(trial) or Worth(best[0], best[1], best[1], None, best[0], best[0])
        if worth.epoch in saved or not saved:
            return worth
        values = dict(self.trials[trial].values(self.metric))
        epoch = max((epoch for epoch in saved if epoch in values), key=lambda e: (e == best[0], e), default=worth.epoch)
        return replace(worth, epoch=epoch, reported=values[epoch])

    def standing_of(self, trial: str) -> Worth | None:
        """The worth of the trial's configuration, with the trial's network: with several seeds their mean."""
        worth, seeds = self.worth_of(trial), self._repeats.seeds(self.trials[trial])
        if worth is None or trial not in self._worths or seeds is None or len(seeds.values) < 2:
            return worth
        count = len(seeds.values)
        return replace(worth, value=seeds.mean, error=self._repeats.error(count), seeds=count)

    def rank(self, trial: TrialRecord) -> Rank:
        """Greater for the trial that ranks higher, of equals for the earlier one; least without a value."""
        best, worth, number = self._bests.get(trial.trial), self._worths.get(trial.trial), -trial.number
        if best is None:
            return -1, 0.0, number, True, 0.0, number
        if worth is not None:
            own = self._sign * worth.value
            members, seeds = self._repeats.of(trial), self._repeats.seeds(trial)
            if seeds is None or self._repeats.most < 2:
                return 1, own, number, True, own, number
            error = self._repeats.error(len(seeds.values)) or 0.0
            sure = self._sign * seeds.mean - SPREADS_BELOW * error
            tier = CONFIRMED if self._repeats.count(trial) == self._repeats.most else 1
            return tier, sure, -members[0].number, bool(trial.checkpoints) or trial.had_last, own, number
        value = self._sign * best[1]
        is_behind = len(self._repeats.of(trial)) > 1 and self._repeats.seeds(trial) is not None  # seeds of full length
        return 0 if is_behind else self._tier(trial), value, number, True, value, number

    def same_configuration(self, trial: TrialRecord) -> Sequence[TrialRecord]:
        """All trials of its configuration, the first one first: one, unless others repeat it with other seeds."""
        return self._repeats.of(trial)

    def seeds_of(self, trial: TrialRecord) -> tuple[float, ...]:
        """The worths of its configuration's trials that were trained to their end, in the order of trials."""
        seeds = self._repeats.seeds(trial)
        return seeds.values if seeds else ()

    def seed_count(self, trial: TrialRecord) -> int:
        """How many seeds count for its configuration, see `tuner.history.repeats`; only one with the most can win."""
        return self._repeats.count(trial)

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds that count for a configuration; at least 1."""
        return self._repeats.most

    @property
    def seed_spread(self) -> float | None:
        """The standard deviation between seeds of one configuration; None if none was trained to its end twice."""
        return self._repeats.spread

    @property
    def repeated(self) -> list[TrialRecord]:
        """The first trials of the configurations that have several."""
        return [self.trials[first] for first in self._repeats.firsts()]

    def represents(self, trial: TrialRecord) -> bool:
        """Whether it stands for its configuration: as the only trial that has it, or the best; not if it failed."""
        members = self._repeats.of(trial)
        if trial.status == "failed" or len(members) == 1:
            return trial.status != "failed"
        return trial is self._representative(members)

    def reported(self) -> list[Standing]:
        """The configurations that have a value, in the order of their trials; failed trials don't count.

        Each is represented by a trial: the only one that has it, or the best one of several seeds.
        """
        return [one for _, one in self._with_ranks(filter(self.represents, self.trials.values()))]

    def ranked(self) -> list[Standing]:
        """Which configurations lead: `reported`, the winner first, of equals the earlier.

        This order is the only answer to what is best.
        """
        found = self._with_ranks(filter(self.represents, self.trials.values()))
        return [one for _, one in sorted(found, reverse=True)]

    def completed(self, alone: int) -> list[Standing]:
        """Those of `ranked` that were trained to their end, of those with one trial only the best `alone`; quick."""
        if self._several is None:
            found = (self._representative(self._repeats.of(self.trials[first])) for first in self._repeats.firsts())
            self._several = self._with_ranks(trial for trial in found if trial and trial.status == "completed")
        best = islice((trial for trial in self.by_worth() if len(self._repeats.of(trial)) == 1), alone)
        return [one for _, one in sorted([*self._several, *self._with_ranks(best)], reverse=True)]

    def by_worth(self) -> Iterator[TrialRecord]:
        """The trials that were trained to their end, the best first, each counted by itself; quick."""
        return (self.trials[name] for _, _, name in self._by_worth)

    def challengers(self) -> list[Standing]:
        """The configurations whose value is better than the winner's, but from too few seeds to win; the best first.

        None as long as no configuration has several seeds. One that was not trained to its end is none of them, unless
        it ranks among or above those that were.
        """
        if self._repeats.most < 2:
            return []
        first, *others = self.ranked()
        rivals = (one for one in others if 1 <= self.rank(one.trial)[0] < CONFIRMED)
        return [one for one in rivals if self._sign * one.value > self._sign * first.value]

    def best_trial(self) -> TrialRecord | None:
        """The trial that ranks highest; failed ones don't count."""
        return self._leader.find()

    @property
    def best_ended_trial(self) -> TrialRecord | None:
        """The highest-ranked of the trials that have ended well."""
        return self._leader_ended.find()

    @property
    def best_reporter(self) -> TrialRecord | None:
        """The trial that reported the best value, at whatever epoch; failed ones don't count."""
        return self._reported.find()

    @property
    def best_value(self) -> float | None:
        """The best value that any trial reported, None while there is none: what the limit `target` reads."""
        best = self.best_reporter
        found = best and self.best_report_of(best.trial)
        return found[1] if found else None

    @property
    def winning_value(self) -> float | None:
        """The value of the highest-ranked trial, None while there is none."""
        best = self.best_trial()
        found = best and self.standing_of(best.trial)
        return found.value if found else None

    def to_beat(self, place: int = 1) -> float | None:
        """The worth at this place among trials that were trained to their end, None while there are fewer."""
        return next((one.value for one in self.completed(place)[place - 1 :]), None)

    def may_be_kept(self, trial: TrialRecord, places: int = 1) -> bool:
        """Whether a trial that goes on may come to rank among the best `places` that ended, by its best value so far.

        With one place: whether it may win.
        """
        best, ended, to_beat = self._bests.get(trial.trial), self.best_ended_trial, self.to_beat(places)
        if to_beat is None and places > 1:
            return best is not None
        if ended is None or best is None:
            return ended is None
        return (
            self._sign * best[1] > self._sign * to_beat if to_beat is not None else self.rank(trial) > self.rank(ended)
        )

    def _candidates(self) -> list[TrialRecord]:
        """The trials that count and reported a number."""
        return [trial for trial in self.trials.values() if trial.trial in self._bests]

    # Inside

    def _compare(self, trial: TrialRecord) -> None:
        for leader in self._leaders:
            leader.changed(trial)

    def _look_again(self) -> None:
        self._several = None
        for leader in self._leaders:
            leader.look_again()

    def _representative(self, members: Sequence[TrialRecord]) -> TrialRecord | None:
        return max((trial for trial in members if trial.status != "failed"), key=self.rank, default=None)

    def _with_ranks(self, trials: Iterable[TrialRecord]) -> list[tuple[Rank, Standing]]:
        """The configurations for which trials stand that have a value; no two have the same rank."""
        found = ((trial, self.standing_of(trial.trial)) for trial in trials)
        return [(self.rank(trial), Standing(trial, worth)) for trial, worth in found if worth is not None]

    def _set_worth(self, trial: TrialRecord, worth: Worth | None) -> None:
        """The worth of a trial that was trained to its end; None if it wasn't."""
        if before := self._worths.pop(trial.trial, None):
            self._by_worth.remove((-self._sign * before.value, trial.number, trial.trial))
        if worth is not None:
            self._worths[trial.trial] = worth
            insort(self._by_worth, (-self._sign * worth.value, trial.number, trial.trial))

    def _by_best(self, trial: TrialRecord) -> Rank:
        best, number = self._bests.get(trial.trial), -trial.number
        value = 0.0 if best is None else self._sign * best[1]
        return -1 if best is None else 0, value, number, True, value, number

    def _tier(self, trial: TrialRecord) -> int:
        """Of a trial that was not trained to its end: 0 behind those that were, 1 among them, 2 ahead of them."""
        if not self._worths:
            return 0
        return 2 if self._is_beyond(trial) else 0 if self._averaged else 1

    def _is_beyond(self, trial: TrialRecord) -> bool:
        """Whether a trial that was not trained to its end is clearly better than those that were."""
        if self._sign * self._bests[trial.trial][1] <= self._highest:
            return False
        if trial.ended_by == TARGET:
            return True
        values = [value for _, value in trial.values(self.metric)]
        last = values[-max(2, late_half(len(values))) :]  # their sum may be too large for a float
        return len(values) > 1 and self._sign * sum(value / len(last) for value in last) > self._highest

    def _look_for_means(self) -> None:
        """Whether a worth is a mean of several epochs may have changed."""
        averaged = any(worth.first < worth.last for worth in self._worths.values())
        if averaged != self._averaged:
            self._averaged = averaged
            for leader in (self._leader, self._leader_ended):
                leader.look_again()

    def _raise_highest(self, highest: float) -> None:
        if highest != self._highest:
            self._highest = highest
            for leader in (self._leader, self._leader_ended):
                leader.look_again()


class _Leader:
    """The best of the trials that count; searched among all only if it may have fallen behind."""

    def __init__(
        self,
        standings: Standings,
        counts: Callable[[TrialRecord], bool],
        by: Callable[[TrialRecord], Rank] | None = None,
    ) -> None:
        self._standings, self._status_counts = standings, counts
        self._rank = by or standings.rank
        self._best: TrialRecord | None = None
        self._known = True

    def changed(self, trial: TrialRecord) -> None:
        """The trial's rank may have changed."""
        if trial is self._best:
            self._known = False
        elif self._known and self._counts(trial) and (self._best is None or self._rank(trial) > self._rank(self._best)):
            self._best = trial

    def look_again(self) -> None:
        """The ranks of other trials may have changed, too."""
        self._known = False

    def find(self) -> TrialRecord | None:
        """The best trial; None if no trial that counts has reported a number."""
        if not self._known:
            counting = (trial for trial in self._standings._candidates() if self._counts(trial))
            self._best, self._known = max(counting, key=self._rank, default=None), True
        return self._best

    def _counts(self, trial: TrialRecord) -> bool:
        return self._status_counts(trial) and self._standings.best_report_of(trial.trial) is not None
