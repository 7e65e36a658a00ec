"""Which configuration is trained under another seed next, where a study races those that lead (`Study.repeats`).

A configuration that leads gets a second seed, and as many as any other, before it counts as the best. After that it and
its rivals get more, those with the fewest first, as long as a rival is less than two standard errors of the difference
behind. This is a race:
configurations that are clearly behind drop out (Maron and Moore, 1994), by a t statistic as in Birattari et al. (2002),
with one spread between seeds for all. One seed is trained at a time, so that each choice knows the result before.
"""

from __future__ import annotations

import math

from tuner.history.records import RunRecord, Standing, TrialRecord

CLEAR = 2.0  # standard errors of the difference that make a configuration clearly worse


def next_to_repeat(record: RunRecord, most: int) -> TrialRecord | None:
    """The first trial of the configuration that gets another seed, `most` at most; None if none needs one now.

    It depends only on the record, so that a later driver goes on with the race in the same way.
    """
    if most < 2 or any(trial.live for first in record.repeated for trial in record.same_configuration(first)[1:]):
        return None  # a race also waits for repeats for `tuner confirm`
    sign, needed = 1.0 if record.mode == "max" else -1.0, max(2, record.most_seeds)
    standing = record.completed(1 + len(record.confirming.refused))  # of equally many seeds only the best may be next
    may_win = [one for one in standing if record.seed_count(one.trial) >= needed or _may_repeat(record, one, most)]
    leader = max(may_win, key=lambda one: sign * one.value, default=None)
    if leader is None:
        return None
    if record.seed_count(leader.trial) < needed:
        return _first(record, leader)
    rivals = [one for one in standing if one is not leader and _is_close(record, leader, one)]
    open_to = [one for one in [leader, *rivals] if _may_repeat(record, one, most)] if rivals else []
    if not open_to:
        return None
    return _first(record, min(open_to, key=lambda one: (_tries(record, one), -sign * one.value, one.trial.number)))


def _may_repeat(record: RunRecord, one: Standing, most: int) -> bool:
    first = one.trial.repeats or one.trial.trial
    return _tries(record, one) < most and first not in record.confirming.refused


def _tries(record: RunRecord, one: Standing) -> int:
    """How many trials have had its configuration, including those that failed or were cut off."""
    return len(record.same_configuration(one.trial))


def _first(record: RunRecord, one: Standing) -> TrialRecord:
    return record.same_configuration(one.trial)[0]


def _is_close(record: RunRecord, leader: Standing, other: Standing) -> bool:
    spread = record.seed_spread or 0.0
    error = spread * math.sqrt(1 / len(record.seeds_of(leader.trial)) + 1 / len(record.seeds_of(other.trial)))
    return abs(leader.value - other.value) < CLEAR * error
