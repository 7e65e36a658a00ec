"""What a search keeps of its budget for training the winner again (`Study.refit`)."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.study import Study

SLACK = 1.2  # of the time: an epoch takes no two times as long


def refit_wanted(study: Study, record: RunRecord) -> bool:
    """Whether the winner is to be trained again: as the study declares, or as `tuner refit` asked, unless undone."""
    return (study.refit is not None and not record.confirming.own) or record.confirming.refit


def kept_for_refit(study: Study, record: RunRecord, reported: int = 0) -> tuple[int, float]:
    """Epochs and seconds that the search keeps back for training its winner again; nothing where that isn't wanted.

    The epochs are enough whatever comes: running trials end the epoch that they are in, and whichever of them wins, its
    refit is as long as it has come. The seconds are an estimate. `reported` is 1 where a running trial has just
    reported an epoch that the record doesn't hold yet, and asks whether it goes on: its next one counts then.
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
    seconds = (epochs * share + bool(running)) * _seconds_per_epoch(record)
    return epochs + max(0, len(running) - reported), SLACK * seconds


def _longest(study: Study, record: RunRecord, running: Sequence[TrialRecord], reported: int) -> int:
    """The epochs of the longest refit that may come to be due: of today's winners, and of any trial that runs."""
    longest = study.budget.max_epochs
    won = [trial for trial in (record.best_trial(), record.best_ended_trial) if trial is not None]
    if won and study.repeats > 1:
        return longest  # another seed may put any configuration first
    worths = [record.worth_of(trial.trial) for trial in won]
    coming = [min(trial.epoch + 1 + reported, full_length(trial.config, longest)) for trial in running]
    return max([*(worth.epoch for worth in worths if worth is not None), *coming], default=0)


def _seconds_per_epoch(record: RunRecord) -> float:
    """Of the winner where it has ended, else of all trials."""
    winner = record.best_trial()
    if winner is not None and winner.running_since is None and winner.epochs and winner.running_seconds:
        return winner.running_seconds / len(winner.epochs)
    return record.running_seconds() / max(1, record.epochs())
