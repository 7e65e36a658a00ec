"""Which checkpoints of a run are kept: what may still be needed, and nothing else.

Kept are the newest of each trial that can go on, and that of the best epoch of each trial that may turn out the winner:
the best of the ended ones, and the running ones that beat it. (30 trials of 9 epochs of ResNet18 with Adam would be 36
GB.)
"""

from __future__ import annotations

from tuner.results.folder import Folder
from tuner.results.records import RunRecord, TrialRecord


class CheckpointKeeper:
    """Deletes the checkpoints of a run that nothing can need any more."""

    def __init__(self, folder: Folder, record: RunRecord) -> None:
        self._folder, self._record = folder, record

    def prune(self) -> list[tuple[str, int]]:
        """Delete what is not needed; returns (trial, epoch) of each checkpoint deleted."""
        holders = [trial for trial in self._record.trials.values() if trial.checkpoints]
        needed = self._needed(holders)
        over = [(t, epoch) for t in holders for epoch in t.checkpoints if (t.trial, epoch) not in needed]
        for trial, epoch in over:
            self._folder.delete(trial.checkpoints[epoch])
        return [(trial.trial, epoch) for trial, epoch in over]

    def _needed(self, holders: list[TrialRecord]) -> set[tuple[str, int]]:
        needed = {(trial.trial, max(trial.checkpoints)) for trial in holders if trial.live}
        ended = [trial for trial in holders if trial.status in ("completed", "stopped")]
        best_ended = max(ended, key=self._rank, default=None)
        candidates = [trial for trial in holders if trial.live]
        if best_ended is not None:
            candidates = [t for t in candidates if self._rank(t) > self._rank(best_ended)] + [best_ended]
        return needed | {(trial.trial, self._best_epoch(trial)) for trial in candidates}

    def _rank(self, trial: TrialRecord) -> tuple[float, int]:
        best = self._record.best_of(trial.trial)
        sign = 1 if self._record.mode == "max" else -1
        return (float("-inf") if best is None else sign * best[1], -trial.number)

    def _best_epoch(self, trial: TrialRecord) -> int:
        """The best epoch that has a checkpoint, or the newest where the best has none."""
        best = self._record.best_of(trial.trial)
        return best[0] if best is not None and best[0] in trial.checkpoints else max(trial.checkpoints)
