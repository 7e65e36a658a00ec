"""The best trial of a run, kept while its trials change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.history.records import RunRecord, TrialRecord


class Leader:
    """The best trial of those that count, the earlier of equals; looked for among all only where the best got worse."""

    def __init__(self, run: RunRecord, counts: Callable[[TrialRecord], bool]) -> None:
        self._run, self._counts = run, counts
        self._best: TrialRecord | None = None
        self._known = True

    def changed(self, trial: TrialRecord) -> None:
        """The trial's best value or status may have."""
        if trial is self._best:
            self._known = False
        elif self._known and self._counts(trial) and self._is_ahead(trial):
            self._best = trial

    def find(self) -> TrialRecord | None:
        """The best trial that counts and has reported a value; None if there is none."""
        if not self._known:
            counting = (trial for trial in self._run.trials.values() if self._counts(trial))
            self._best, self._known = max(counting, key=self._run.rank, default=None), True
        return self._best

    def _is_ahead(self, trial: TrialRecord) -> bool:
        return self._best is None or self._run.rank(trial) > self._run.rank(self._best)
