"""What a search keeps of its budget for training the winner again (`Study.refit`)."""

from __future__ import annotations

from tuner.history.records import RunRecord
from tuner.study import Study

SLACK = 1.2  # of the time: an epoch takes no two times as long


def refit_wanted(study: Study, record: RunRecord) -> bool:
    """Whether the winner is to be trained again: as the study declares, or as `tuner refit` asked, unless undone."""
    return (study.refit is not None and not record.confirming.own) or record.confirming.refit


def kept_for_refit(study: Study, record: RunRecord) -> tuple[int, float]:
    """Epochs and seconds, about, that training the winner of now again takes; nothing where that isn't wanted.

    When the search ends, the other trials that run still report the epoch that they are in: room is kept for it, too.
    """
    winner = record.best_trial() if refit_wanted(study, record) and not record.confirming.alone else None
    worth = winner and record.worth_of(winner.trial)
    if winner is None or worth is None:
        return 0, 0.0
    others = sum(trial.status == "running" for trial in record.trials.values()) - 1
    seconds = worth.epoch * _seconds_per_epoch(record) * (study.declared_trial.refit_share or 1.0)
    return worth.epoch + max(0, others), SLACK * seconds


def _seconds_per_epoch(record: RunRecord) -> float:
    """Of the winner where it has ended, else of all trials."""
    winner = record.best_trial()
    if winner is not None and winner.running_since is None and winner.epochs and winner.running_seconds:
        return winner.running_seconds / len(winner.epochs)
    return record.running_seconds() / max(1, record.epochs())
