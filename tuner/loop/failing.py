"""What follows the failure of a trial: another try, perhaps alone on its device, or its end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tuner.errors import RunFolderError
from tuner.failures import Failures
from tuner.history.attempts import LOST
from tuner.history.records import RunRecord, TrialRecord
from tuner.loop.packing import Place
from tuner.loop.queue import Entry, Queue

ERROR, OUT_OF_MEMORY = "error", "out_of_memory"
Next = tuple[Entry, Place | None]


class Failing:
    """Counts the tries that trials have left, and keeps others away from a trial that is tried alone.

    `apart` says that a trial is alone only while no other one of the search runs: so it is where Ray gives trials CPUs,
    or parts of GPUs. Such a trial waits until there is nothing else to run, so that no worker waits for it.
    """

    def __init__(self, allowed: Failures, record: RunRecord, *, apart: bool) -> None:
        self._allowed, self._record, self._apart = allowed, record, apart
        self._waiting: list[Next] = []  # for all others to be off their workers

    def may_be_lost(self, trial: TrialRecord) -> bool:
        """Whether the trial is tried again if its worker is lost now."""
        return trial.attempts.count(LOST) < self._allowed.lost

    def follow_up(self, trial: TrialRecord, cause: str, *, shares: bool) -> dict[str, Any] | None:
        """Further fields of the event by which a trial that failed is tried again; None where it isn't.

        One whose memory ran out is, alone, if it was not alone before: it `shares` its device with others.
        """
        if cause not in (ERROR, OUT_OF_MEMORY) or trial.attempts.count(cause) >= self._allowed.tries(cause):
            return None
        if cause == ERROR:
            return {}
        return {"alone": True} if shares else None

    def gave_up(self, trial: TrialRecord) -> bool:
        """Whether the trial has failed too often for the try that it waits for, as by a study that was edited."""
        attempts = trial.attempts
        return attempts.waiting and any(
            attempts.count(kind) > self._allowed.tries(kind) for kind in (LOST, ERROR, OUT_OF_MEMORY)
        )

    # Trials that are tried alone

    def keeps_others_out(self, running: Collection[str]) -> bool:
        """Whether a trial runs beside which nothing may start."""
        return any(self._runs_apart(trial) for trial in running)

    def next(self, queue: Queue, running: Collection[str]) -> Next | None:
        """What the queue has next; trials to be tried alone come when nothing else runs or can be started."""
        found = queue.next()
        while found is not None and running and self._runs_apart(found[0].start.trial):
            self._waiting.append(found)
            found = queue.next()
        if found is None and not running and self._waiting:
            return self._waiting.pop(0)
        return found

    def clear(self) -> None:
        """Nothing of what waits will run."""
        self._waiting.clear()

    def _runs_apart(self, trial: str) -> bool:
        known = self._record.trials.get(trial)
        return self._apart and known is not None and known.attempts.alone


def to_retry(record: RunRecord, named: Iterable[str]) -> list[str]:
    """The failed trials of these names, leading zeros left out or not; without names all but those that diverged.

    Raises RunFolderError for one that hasn't failed, and where there is none.
    """
    wanted = list(named)
    if wanted:
        return list(dict.fromkeys(_failed(record, name) for name in wanted))
    found = [t.trial for t in record.trials.values() if t.status == "failed" and t.cause != "diverged"]
    if not found:
        diverged = sum(trial.status == "failed" for trial in record.trials.values())
        but = f" but {diverged} that diverged; name one with --trial to run it all the same" if diverged else ""
        raise RunFolderError(f"failed trials can run again, got a run without any{but or '; there is nothing to do'}")
    return found


def _failed(record: RunRecord, name: str) -> str:
    trial = record.trials.get(name) or record.trials.get(name.zfill(5))
    if trial is None:
        raise RunFolderError(f"a trial is named by its id, got {name!r}, which the run doesn't have; see `tuner show`")
    if trial.status != "failed":
        raise RunFolderError(
            f"only failed trials can run again, got trial {trial.trial}, which is {trial.status}; leave it out"
        )
    return trial.trial
