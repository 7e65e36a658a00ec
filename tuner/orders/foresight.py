"""What can be said about an order before the driver answers it, from the run's record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.errors import shown
from tuner.history.records import RunRecord
from tuner.space import Config, Space
from tuner.study.budget import SECONDS_PER_HOUR, Limit, Spending, limits_of

UNITS = {"hours": "h", "device_hours": "device hours", "total_epochs": "epochs"}  # of what a run uses up


def too_few_trials(record: RunRecord, trials: float | None) -> str | None:
    """Why the total of trials can't be this low, in a sentence; None if it can."""
    begun = trials_begun(record)
    if trials is None or trials >= begun:
        return None
    return (
        f"trials counts the whole run and needs at least the {begun} that were begun or ordered, got {trials:g}; "
        "the order `stop` ends the search now"
    )


def trials_begun(record: RunRecord) -> int:
    """The number of the run's configurations, including those that `try` has ordered and that wait for a worker."""
    return record.configurations + len(record.steered.waiting)


def tried_before(record: RunRecord, space: Space, config: Config) -> str | None:
    """Why a checked configuration can't be ordered, in a sentence, if a trial has it; None if none has it.

    One that lacks values is completed by the search with others than a trial has.
    """
    key = space.key(config)
    which = next((trial.trial for trial in record.trials.values() if space.key(trial.config) == key), None)
    if which is None:
        return None
    return f"try needs a configuration that no trial had, got {shown(config)}, which trial {which} has; change a value"


def used_up(record: RunRecord, budget: Mapping[str, Any], devices: float) -> tuple[Limit, str] | None:
    """The limit of a budget that the run has reached already, so that nothing more would be trained, and a sentence.

    `devices` is how many devices a running trial holds. None if no limit is reached.
    """
    spent = record, devices, record.active_seconds, record.last_time or 0.0
    spending = Spending(*spent, mode="max" if record.mode == "max" else "min")
    for limit, value in limits_of(budget):
        if limit.reached is not None and limit.reached(value, spending):
            return limit, _told_of(limit, value, spending, record.metric)
    return None


def _told_of(limit: Limit, value: float, spending: Spending, metric: str) -> str:
    spent = math.nan if limit.spent is None else limit.spent(spending)
    used, kind = f"used {spent:.4g} {UNITS.get(limit.name)}", "limit"
    if limit.name not in UNITS:
        used, kind = f"reached {metric} {spent:.4g}", limit.name
    return f"the run has {used} already, so that no further trial would start with a {kind} of {value:g}"


def all_begun(record: RunRecord, trials: float | None) -> str | None:
    """A sentence if all trials of this total have begun, which the user may not expect; else None."""
    begun = trials_begun(record)
    return None if trials is None or trials > begun else f"that is all {begun} that were begun: no further one starts"


def cut_short(record: RunRecord, trials: float | None, hours: float | None) -> str | None:
    """A sentence if this many trials won't be done within this many hours of the run, at the pace so far; else None."""
    ended = sum(not trial.live for trial in record.trials.values() if trial.suggested)
    if trials is None or hours is None or not ended or trials <= ended:
        return None
    spent = record.wall_seconds / SECONDS_PER_HOUR
    needed = spent / ended * (trials - ended)
    if needed <= hours - spent:
        return None
    left = max(0.0, hours - spent)
    return (
        f"the limit of {hours:g} hours leaves {left:.2g} h, and at the pace so far the {trials - ended:g} trials that "
        f"are left take about {needed:.2g} h: raise hours, too, to at least {spent + needed:.2g}"
    )
