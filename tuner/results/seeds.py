"""Configurations that were trained with several seeds: their values, and how certain it is that the best is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner.history.records import TrialRecord
from tuner.history.worth import Worth
from tuner.results.groups import Difference, difference
from tuner.results.run import RecordedRun
from tuner.results.wording import going_on_by, plural, short, with_error

ALIKE = (
    "each trial of a configuration reported the same value under every seed: training sets a seed of its own, or uses "
    "no random numbers, so further seeds say nothing"
)
TOP = 3  # configurations that are confirmed by default, and that a printed command names at most
MOST_ALIKE = 1e-12  # relative to a value: a smaller spread counts as none


@dataclass(frozen=True)
class Repeated:
    """One configuration with several seeds.

    Attributes:
        best: the trial whose network stands for it
        trials: all of its trials, the first one first
        worth: the mean over those that were trained to their end, with its standard error
        values: the worth of each of these, in the order of trials
    """

    best: TrialRecord
    trials: tuple[TrialRecord, ...]
    worth: Worth
    values: tuple[float, ...]

    @property
    def first(self) -> TrialRecord:
        """The trial that had the configuration first, whose id names it."""
        return self.trials[0]

    @property
    def missing(self) -> str:
        """The other trials' states: "1 failed", "2 still run or wait"; empty if all were trained to their end."""
        failed = sum(trial.status == "failed" for trial in self.trials)
        stopped = sum(trial.status == "stopped" for trial in self.trials)
        live = sum(trial.live for trial in self.trials)
        parts = [(failed, "failed"), (stopped, "not trained to the end"), (live, "not done yet")]
        return ", ".join(f"{count} {what}" for count, what in parts if count)


def repeated(run: RecordedRun) -> list[Repeated]:
    """The configurations that have several trials, the best first."""
    record, several = run.record, {one.trial for one in run.record.repeated}
    return [
        Repeated(one.trial, tuple(record.same_configuration(one.trial)), one.worth, record.seeds_of(one.trial))
        for one in record.ranked()
        if (one.trial.repeats or one.trial.trial) in several
    ]


def ahead(known: Sequence[Repeated], mode: str) -> Difference | None:
    """Whether the best of configurations with at least two seeds is better than the next one, by a t-test."""
    if len(known) < 2 or _are_alike(known):
        return None
    first, second = known[:2]
    names = [f"the configuration of trial {one.first.trial}" for one in (first, second)]
    mine: dict[int | None, float] = dict(enumerate(first.values, start=len(second.values)))  # none in both
    other: dict[int | None, float] = dict(enumerate(second.values))
    return difference(names[0], mine, names[1], other, mode, len(known))


def verdict(run: RecordedRun, seeded: Sequence[Repeated]) -> str | None:
    """Which of `repeated` configurations is best and how certainly, in a sentence; None if none has several seeds."""
    known, beside = [one for one in seeded if len(one.values) > 1], _unconfirmed(run)
    if not known:
        return beside.removeprefix("; ") or None
    found = ahead(known, run.mode)
    if _are_alike(known):
        return ALIKE + beside
    if found is None:
        one = known[0]
        value = f"the configuration of trial {one.first.trial} has {run.metric} {with_error(one.worth)}, " + _of(one)
        return value + beside
    sure = "surely" if found.sure else "not surely"
    return (
        f"{found.better} is {sure} better than {found.worse.removeprefix('the configuration of ')}: ahead by "
        f"{found.difference:.3g} (95 % interval {found.low:.3g} to {found.high:.3g}; p = {found.p:.2g}, "
        f"Welch's t-test over {' and '.join(str(len(one.values)) for one in known[:2])} seeds){beside}"
    )


def _unconfirmed(run: RecordedRun) -> str:
    """A part of a sentence about configurations that are better than the winner, but from too few seeds to win."""
    better = run.record.challengers()
    if not better:
        return ""
    first, top = better[0], min(TOP, len(better))
    others = f", like {len(better) - 1} more," if len(better) > 1 else ""
    confirm = "" if run.info["asked"] else f": {going_on_by(run, confirm=top)}"
    return (
        f"; trial {first.trial.trial}{others} has a better {run.metric}, {short(first.value)}, but under fewer seeds, "
        f"so it is not the winner before it is confirmed{confirm}"
    )


def _of(one: Repeated) -> str:
    return f"the mean of {plural(len(one.values), 'seed')}, {short(min(one.values))} to {short(max(one.values))}"


def _are_alike(known: Sequence[Repeated]) -> bool:
    """Whether the seeds make no difference."""
    return all(abs(a - b) <= MOST_ALIKE * max(abs(a), abs(b)) for one in known for a, b in pairwise(one.values))
