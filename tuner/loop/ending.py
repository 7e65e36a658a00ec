"""Ends trials that wait and will never go on."""

from __future__ import annotations

from collections.abc import Callable

from tuner.history.records import RunRecord
from tuner.loop.failing import Failing
from tuner.loop.judging import EARLY_STOPPING
from tuner.loop.limits import Limits
from tuner.loop.refitting import Refitting
from tuner.loop.stopping import Stopping
from tuner.results.dead import alike_sentence, unread_sentence
from tuner.space import Space


class Ending:
    """Ends trials that wait and won't go on; `end` ends one trial."""

    def __init__(
        self,
        record: RunRecord,
        stopping: Stopping,
        limits: Limits,
        failing: Failing,
        refitting: Refitting,
        end: Callable[..., None],
    ) -> None:
        self._record, self._stopping, self._limits = record, stopping, limits
        self._failing, self._refitting, self._end = failing, refitting, end

    def of_eliminated(self) -> None:
        """End paused trials that early stopping never continues."""
        for trial in self._stopping.eliminated():
            if self._record.trials[trial].status == "paused":
                self._end(trial, status="stopped", by=EARLY_STOPPING)

    def of_the_rest(self) -> None:
        """When the search is done: end all trials that could still report, except for the refit that is due."""
        limit = self._limits.reached() or EARLY_STOPPING
        self._failing.clear()
        self._refitting.end_others(self._end)
        for record in [trial for trial in self._record.trials.values() if trial.live and trial.refits is None]:
            if record.attempts.due is not None:
                self._failing.end_as_failed(record)
            else:
                self._end(record.trial, status="stopped", by=limit)


def tell_of_dead(record: RunRecord, space: Space, notice: Callable[..., None]) -> None:
    """After the end of a trial, say once which hyperparameters seem to change nothing."""
    if "unread" not in record.notice_codes and (said := unread_sentence(record, space)):
        notice(said, code="unread")
    if "alike" not in record.notice_codes and (said := alike_sentence(record, space)):
        notice(said, code="alike")
