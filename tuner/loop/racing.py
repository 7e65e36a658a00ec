"""Which configuration is trained under another seed next, where a study races those that lead (`Study.repeats`).

A configuration that leads gets a second seed before it counts as the best. After that it and its rivals get more, those
with the fewest first, as long as a rival is less than two standard errors of the difference behind. This is a race:
configurations that are clearly behind drop out (Maron and Moore, 1994), by a t statistic as in Birattari et al. (2002),
with one spread between seeds for all. One seed is trained at a time, so that each choice knows the result before.
"""

from __future__ import annotations

import math

from tuner.history.records import RunRecord, TrialRecord

CLEAR = 2.0  # standard errors of the difference that make a configuration clearly worse


def next_to_repeat(record: RunRecord, most: int) -> TrialRecord | None:
    """The first trial of the configuration that gets another seed, `most` at most; None if none needs one now.

    It depends only on the record, so that a later driver goes on with the race in the same way.
    """
    if most < 2 or any(_in_the_race(trial) for trial in record.trials.values()):
        return None
    standing = [trial for trial, _ in record.ranked() if record.seeds_of(trial)]
    if not standing:
        return None
    means = {trial.trial: _mean(record, trial) for trial in standing}
    sign = 1.0 if record.mode == "max" else -1.0
    leader = max(standing, key=lambda trial: sign * means[trial.trial])
    if len(record.seeds_of(leader)) < 2:
        return _first(record, leader) if _may_repeat(record, leader, most) else None
    rivals = [t for t in standing if t is not leader and _is_close(record, means, leader, t)]
    open_to = [trial for trial in [leader, *rivals] if _may_repeat(record, trial, most)] if rivals else []
    if not open_to:
        return None
    return _first(record, min(open_to, key=lambda t: (_tries(record, t), -sign * means[t.trial], t.number)))


def _in_the_race(trial: TrialRecord) -> bool:
    """Whether it is a repeat that may still be completed; a race also waits for repeats for `tuner confirm`."""
    return trial.repeats is not None and trial.live


def _may_repeat(record: RunRecord, trial: TrialRecord, most: int) -> bool:
    first = trial.repeats or trial.trial
    return _tries(record, trial) < most and first not in record.confirming.refused


def _tries(record: RunRecord, trial: TrialRecord) -> int:
    """How many trials have had its configuration, including those that failed or were cut off."""
    return len(record.same_configuration(trial))


def _first(record: RunRecord, trial: TrialRecord) -> TrialRecord:
    return record.same_configuration(trial)[0]


def _mean(record: RunRecord, trial: TrialRecord) -> float:
    standing = record.standing_of(trial.trial)
    return standing.value if standing else math.nan


def _is_close(record: RunRecord, means: dict[str, float], leader: TrialRecord, other: TrialRecord) -> bool:
    spread = record.seed_spread or 0.0
    error = spread * math.sqrt(1 / len(record.seeds_of(leader)) + 1 / len(record.seeds_of(other)))
    return abs(means[leader.trial] - means[other.trial]) < CLEAR * error
