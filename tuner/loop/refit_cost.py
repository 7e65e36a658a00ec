"""The part of its budget that a search reserves for training the winner again (`Study.refit`)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from tuner.history.pace import stay_times
from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.history.refits import trained_refit
from tuner.study.declaration import Study

RECENT = 8  # trials, of those that ended last: they say how long epochs take
SLACK = 1.2  # factor on the time: epochs don't all take equally long


def refit_wanted(study: Study, record: RunRecord) -> bool:
    """Whether the winner is to be trained again: as the study declares, or as `tuner refit` asked, unless undone."""
    return (study.refit is not None and not record.confirming.own) or record.confirming.refit


def kept_for_refit(study: Study, record: RunRecord, reported: int = 0) -> tuple[int, float]:
    """Epochs and seconds that the search reserves for training its winner again; nothing if that isn't wanted.

    The epochs are always enough: running trials end their current epoch, and the refit of any of them has at most as
    many epochs. The seconds are an estimate. `reported` is 1 if a running trial has just reported an epoch that the
    record doesn't hold yet, and asks whether it goes on: then its next epoch counts.
    """
    if not refit_wanted(study, record) or record.confirming.alone:
        return 0, 0.0
    running = list(record.on_workers.values())
    if any(trial.refits is not None for trial in running):
        return 0, 0.0  # it is being trained
    epochs = _longest(study, record, running, reported)
    if epochs == 0:
        return 0, 0.0
    share = study.declared_trial.refit_share or 1.0
    return epochs + max(0, len(running) - reported), SLACK * _seconds(record, epochs * share, bool(running))


def _longest(study: Study, record: RunRecord, running: Sequence[TrialRecord], reported: int) -> int:
    """The epochs of the longest refit that may become due: of the present winners, and of any running trial."""
    longest, done = study.budget.max_epochs, trained_refit(record) is not None
    if done and not running:
        return 0
    if study.repeats > 1 and record.best_trial() is not None:
        return longest  # another seed may make any configuration the best
    won = () if done else (record.best_trial(), record.best_ended_trial)
    worths = [record.worth_of(trial.trial) for trial in won if trial is not None]
    coming = [min(trial.epoch + 1 + reported, full_length(trial.config, longest)) for trial in running]
    return max([*(worth.epoch for worth in worths if worth is not None), *coming], default=0)


def _seconds(record: RunRecord, epochs: float, running: bool) -> float:
    """Seconds of a start and this many epochs, after the present epoch of running trials; 0 before any was measured."""
    recent = [*record.ended_trials[-RECENT:], *record.on_workers.values()]
    seen = [stay_times(trial) for trial in recent]
    firsts = [first for stays, _ in seen for first in stays]
    if not firsts:
        return 0.0
    winner = record.best_trial()
    gaps = stay_times(winner)[1] if winner is not None else []
    gaps = gaps or [gap for _, each in seen for gap in each]
    epoch = fmean(gaps) if gaps else median(firsts)
    return max(0.0, median(firsts) - epoch) + (epochs + running) * epoch
