"""What can be said about an order before the driver answers it, from the run's record."""

from __future__ import annotations

from tuner.budget import SECONDS_PER_HOUR
from tuner.errors import shown
from tuner.history.records import RunRecord
from tuner.space import Config, Space


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


def used_up(record: RunRecord, hours: float | None) -> str | None:
    """A sentence if the run has already used this many hours, so that nothing more would be trained; else None."""
    used = record.active_seconds / SECONDS_PER_HOUR
    if hours is None or used < hours:
        return None
    return f"the run has used {used:.2g} h already, so that no further trial would start with a limit of {hours:g}"


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
