"""What follows the failure of a trial: another try, perhaps alone on its device, or its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from tuner.errors import RunFolderError, setting
from tuner.history.attempts import LOST, USED
from tuner.history.records import RunRecord, TrialRecord
from tuner.loop.limits import Limits
from tuner.loop.packing import Admission, Place
from tuner.loop.queue import Entry, Queue
from tuner.loop.stopping import Stopping
from tuner.search import Proposals
from tuner.study.failures import Failures

ERROR, OUT_OF_MEMORY = "error", "out_of_memory"
Next = tuple[Entry, Place | None]


class Failing:
    """Counts the tries that trials have left, and keeps others away from a trial that is tried alone.

    `running` are the loop's trials on workers. Where `admission` is None and they `share` devices, as CPUs or parts of
    GPUs that Ray gives them, a trial is alone only while no other trial of the search runs: it waits until there is
    nothing else to run, so that no worker stays idle for it. `emit` writes an event and applies it, `end` ends a trial.
    """

    def __init__(
        self,
        allowed: Failures,
        record: RunRecord,
        queue: Queue,
        running: Set[str],
        admission: Admission | None,
        share: bool,
        emit: Callable[..., None],
        end: Callable[..., None],
    ) -> None:
        self._allowed, self._record, self._queue, self._running = allowed, record, queue, running
        self._admission, self._share = admission, share
        self._emit, self._end = emit, end
        self._waiting: list[Next] = []  # until all other trials have left their workers

    def failed(
        self, trial: str, cause: str, message: str, traceback: str | None, *, final: bool, used: bool = False
    ) -> bool:
        """Whether the trial is tried again, and waits now; otherwise it has ended. After a `final` failure there is no
        retry. If its `used` worker may be to blame, it is tried once more on a fresh one.
        """
        record, shares = self._record.trials[trial], self._shares(trial)
        if cause == OUT_OF_MEMORY and shares and self._admission is not None and self._left(record, LOST):
            return self.lost(trial, cause, message)
        failure = {"cause": cause, "message": message, "traceback": traceback}
        alone = cause == OUT_OF_MEMORY
        if used and not final and not record.attempts.count(USED):
            self._emit("trial_retried", trial=trial, **failure, used=True)
            self._queue.put_back(record)
            return True
        if final or cause not in (ERROR, OUT_OF_MEMORY) or not self._left(record, cause) or (alone and not shares):
            self._end(trial, status="failed", **failure)
            return False
        self._emit("trial_retried", trial=trial, **failure, **({"alone": True} if alone else {}))
        self._queue.put_back(record)
        return True

    def lost(self, trial: str, cause: str, message: str, traceback: str | None = None) -> bool:
        """Like `failed`, for a trial whose worker or node died."""
        stacks = {"traceback": traceback} if traceback else {}
        self._emit("trial_lost", trial=trial, cause=cause, message=message, **stacks)
        record = self._record.trials[trial]
        if self.gave_up(record):
            self._end(trial, status="failed", cause=cause, message=message, traceback=traceback)
            return False
        self._queue.put_back(record)
        return True

    def retry(self, named: Iterable[str], proposals: Proposals, stopping: Stopping, limits: Limits) -> list[str]:
        """Run these failed trials again, and tell `proposals` and `stopping`. See `SearchLoop.retry`."""
        names, ending = to_run_again(self._record, named, limits), limits.reached()
        added = ending is not None and only_confirm(self._record, names)
        self._emit("retry_requested", trials=names, **({"alone": True, "ended_by": ending} if added else {}))
        self.run_again(names, proposals, stopping)
        return names

    def run_again(self, names: Iterable[str], proposals: Proposals, stopping: Stopping) -> None:
        """Put failed trials back into the queue, once an event says that they run again."""
        for record in map(self._record.trials.__getitem__, names):
            if record.suggested:  # a trial that repeats a configuration was not suggested and is not stopped early
                proposals.restart(record.configuration)
                stopping.restart(record.trial)
            self._queue.put_back(record)

    def gave_up(self, trial: TrialRecord) -> bool:
        """Whether the trial has failed too often for another try, for instance because the study was edited."""
        attempts = trial.attempts
        return attempts.waiting and any(
            attempts.count(kind) > self._allowed.tries(kind) for kind in (LOST, ERROR, OUT_OF_MEMORY)
        )

    def end_as_failed(self, trial: TrialRecord) -> None:
        """End a trial that won't be tried again, with its last failure."""
        last = trial.attempts.last
        self._end(trial.trial, status="failed", cause=last.cause, message=last.message, traceback=last.traceback)

    # Trials that are tried alone

    def next(self) -> Next | None:
        """What runs next; trials to be tried alone come when nothing else runs or can be started."""
        if any(map(self._runs_apart, self._running)):
            return None
        self._waiting = [each for each in self._waiting if self._record.trials[each[0].start.trial].live]
        found = self._queue.next()
        while found is not None and self._running and self._runs_apart(found[0].start.trial):
            self._waiting.append(found)
            found = self._queue.next()
        if found is None and not self._running and self._waiting:
            return self._waiting.pop(0)
        return found

    @property
    def waiting(self) -> frozenset[str]:
        """The trials that go on when no other trial runs, or when a device has room for them."""
        names = {entry.start.trial for entry, _ in self._waiting}
        return frozenset(names if self._queue.waiting is None else names | {self._queue.waiting})

    def clear(self) -> None:
        """Forget all trials that wait: they will not run."""
        self._queue.clear()
        self._waiting.clear()

    def _left(self, trial: TrialRecord, kind: str) -> bool:
        """Whether the trial may fail in this way once more."""
        return trial.attempts.count(kind) < self._allowed.tries(kind)

    def _shares(self, trial: str) -> bool:
        """Whether other trials of the search are on the trial's device now."""
        if self._admission is not None:
            return self._admission.packing.shares(trial)
        return self._share and len(self._running) > 1

    def _runs_apart(self, trial: str) -> bool:
        known = self._record.trials.get(trial)
        return self._share and self._admission is None and known is not None and known.attempts.alone


def to_retry(record: RunRecord, named: Iterable[str]) -> list[str]:
    """The failed trials with these names, with or without leading zeros; without names all except those that diverged.
    Raises RunFolderError for a trial that hasn't failed, and if there is no such trial.
    """
    wanted = list(named)
    if wanted:
        return list(dict.fromkeys(_failed(record, name) for name in wanted))
    found = [t.trial for t in record.trials.values() if t.status == "failed" and t.cause != "diverged"]
    if not found:
        diverged = sum(trial.status == "failed" for trial in record.trials.values())
        but = (
            f" but {diverged} that diverged; name one with {setting('--trial', name='retry')} to run it all the same"
            if diverged
            else ""
        )
        raise RunFolderError(f"failed trials can run again, got a run without any{but or '; there is nothing to do'}")
    return found


def to_run_again(record: RunRecord, named: Iterable[str], limits: Limits) -> list[str]:
    """Those of `to_retry`, before the driver begins that runs them; RunFolderError if a limit leaves them no time."""
    names = to_retry(record, named)
    refusal = limits.refusal()
    if refusal is not None and not only_confirm(record, names):
        raise RunFolderError(refusal)
    return names


def only_confirm(record: RunRecord, names: Iterable[str]) -> bool:
    """Whether `tuner confirm` asked for all these trials: the limits that ended the search don't count for them."""
    return all(record.trials[name].confirms for name in names)


def _failed(record: RunRecord, name: str) -> str:
    trial = record.named(name)
    if trial is None:
        raise RunFolderError(f"a trial is named by its id, got {name!r}, which the run doesn't have; `show` lists them")
    if trial.status != "failed":
        raise RunFolderError(
            f"only failed trials can run again, got trial {trial.trial}, which is {trial.status}; leave it out"
        )
    return trial.trial
