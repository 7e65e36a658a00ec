"""Which checkpoints of a run are kept: what may still be needed, and nothing else.

Kept are the newest of each trial that can go on, and that of the best epoch of each trial that may turn out the winner:
the best of the ended ones, and the running ones that beat it. (30 trials of 9 epochs of ResNet18 with Adam would be 36
GB.) This is the one place that decides it; nothing else deletes a checkpoint of a trial.
"""

from __future__ import annotations

from tuner.results.records import ENDED, RunRecord, TrialRecord


def not_needed(record: RunRecord) -> list[tuple[str, int]]:
    """(trial, epoch) of each checkpoint that nothing can need any more."""
    holders = [trial for trial in record.trials.values() if trial.checkpoints]
    needed = _needed(record, holders)
    return [(t.trial, epoch) for t in holders for epoch in sorted(t.checkpoints) if (t.trial, epoch) not in needed]


def _needed(record: RunRecord, holders: list[TrialRecord]) -> set[tuple[str, int]]:
    needed = {(trial.trial, trial.last_checkpoint) for trial in holders if trial.live}
    best_ended = max((t for t in holders if t.status in ENDED), key=lambda t: _rank(record, t), default=None)
    candidates = [trial for trial in holders if trial.live]
    if best_ended is not None:
        candidates = [t for t in candidates if _rank(record, t) > _rank(record, best_ended)] + [best_ended]
    return needed | {(trial.trial, _best_epoch(record, trial)) for trial in candidates}


def _rank(record: RunRecord, trial: TrialRecord) -> tuple[float, int]:
    best = record.best_of(trial.trial)
    sign = 1 if record.mode == "max" else -1
    return (float("-inf") if best is None else sign * best[1], -trial.number)


def _best_epoch(record: RunRecord, trial: TrialRecord) -> int:
    """The best epoch that has a checkpoint, or the newest where the best has none."""
    best = record.best_of(trial.trial)
    return best[0] if best is not None and best[0] in trial.checkpoints else trial.last_checkpoint
