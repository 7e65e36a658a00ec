"""Which checkpoints of a run are kept: what may still be needed, and nothing else.

Kept are the newest of each trial that can go on, and that of the best epoch of each trial that may turn out the winner:
the best of the ended ones, and the running ones that beat it. (30 trials of 9 epochs of ResNet18 with Adam would be 36
GB.) This is the one place that decides it; nothing else deletes a checkpoint of a trial.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.history.records import RunRecord, TrialRecord


def not_needed(record: RunRecord, among: Iterable[TrialRecord] | None = None) -> list[tuple[str, int]]:
    """(trial, epoch) of each checkpoint that nothing can need any more; of these trials alone, by default of all.

    Of the others none becomes needless unless the best of the ended ones becomes another.
    """
    trials = list(record.trials.values() if among is None else among)
    return [(t.trial, epoch) for t in trials for epoch in sorted(t.checkpoints - _needed(record, t))]


def _needed(record: RunRecord, trial: TrialRecord) -> set[int]:
    needed = {trial.last_checkpoint} if trial.live else set()
    incumbent = record.best_ended_trial
    if trial is incumbent or (trial.live and _may_win(record, trial, incumbent)):
        needed.add(_best_epoch(record, trial))
    return needed


def _may_win(record: RunRecord, trial: TrialRecord, incumbent: TrialRecord | None) -> bool:
    return incumbent is None or record.rank(trial) > record.rank(incumbent)


def _best_epoch(record: RunRecord, trial: TrialRecord) -> int:
    """The best epoch that has a checkpoint, or the newest where the best has none."""
    best = record.best_of(trial.trial)
    return best[0] if best is not None and best[0] in trial.checkpoints else trial.last_checkpoint
