"""The trials that were handed out and are not finished yet."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from tuner.ask_tell.driver import AskDriver
from tuner.ask_tell.report_checks import CAUSES, as_stored, checked_next, known_trial
from tuner.ask_tell.trial import Answer, AskedTrial
from tuner.errors import ReportError, TrialError
from tuner.history.checkpoints import CheckpointStore, copied
from tuner.history.records import TrialRecord
from tuner.loop.queue import Start
from tuner.machine.temporary import OwnedFolder
from tuner.schedule import Decision
from tuner.storage.locations import no_space

_ANSWERS: dict[Decision, Answer] = {
    Decision.CONTINUE: "continue",
    Decision.STOP: "stop",
    Decision.PAUSE: "pause",
}


class Out:
    """Hands out trials, and answers reports about them."""

    def __init__(self, driver: AskDriver) -> None:
        self._driver, self._loop = driver, driver.loop
        self._store = CheckpointStore(driver.folder)
        self._last: dict[str, int] = {}  # the last epoch of each trial that was handed out
        self._fetched = OwnedFolder("asked")

    def close(self) -> None:
        """Delete fetched checkpoints."""
        self._fetched.delete()

    def next_epoch(self, trial: AskedTrial | str) -> int:
        """The epoch that is to be reported next. Raises ReportError for a trial that doesn't exist."""
        with self._driver.working():
            return self._last.get(known_trial(self._loop.record, trial).trial, 0) + 1

    def handed(self, start: Start) -> AskedTrial:
        """The trial as it is handed out."""
        record, study = self._loop.record.trials[start.trial], self._loop.study
        epoch, checkpoint = self._found(record, start.reported)
        self._last[start.trial] = epoch
        return AskedTrial(
            id=start.trial,
            number=start.number,
            config=deepcopy(start.config),
            seed=start.seed,
            epochs=start.epochs,
            from_epoch=epoch,
            checkpoint=checkpoint,
            rungs=tuple(rung for rung in study.scheduler.rungs(study.budget.max_epochs) if rung < start.epochs),
            metrics={each.epoch: dict(each.metrics) for each in list(record.epochs.values())},
            attempt=len(record.entered),
        )

    def keep(self, trial: AskedTrial) -> None:
        """Note that the trial's worker kept its state: the epoch after the last reported one comes next."""
        with self._driver.working():
            self._last[trial.id] = known_trial(self._loop.record, trial).epoch

    def _found(self, record: TrialRecord, reported: int) -> tuple[int, Path | None]:
        """Epoch and folder of the newest whole checkpoint; a damaged one is skipped, with a notice."""
        for epoch in sorted(record.checkpoints, reverse=True):
            if epoch > reported:
                continue
            try:
                return epoch, self._store.fetch(record.trial, epoch, self._fetched.path / f"{record.trial}-{epoch}")
            except TrialError as error:
                if not self._store.has(record.trial, epoch):  # just deleted
                    continue
                with self._driver.working():
                    self._loop.notice(f"a checkpoint is skipped: {error}")
        return 0, None

    def is_with(self, trial: AskedTrial | str, record: TrialRecord) -> bool:
        """Whether the trial is handed out to the program that reports it."""
        return _is_newest(trial, record) and self._driver.is_out(record.trial)

    def answer_now(self, trial: AskedTrial | str, epoch: int, metrics: dict[str, Any]) -> Answer | None:
        """The answer to a report that is not to be recorded; None for one that is. Raises ReportError."""
        self._driver.look()
        record = known_trial(self._loop.record, trial)
        with_it, last = self.is_with(trial, record), self._last.get(record.trial, 0)
        known = record.epochs.get(epoch)
        if known is not None and known.metrics == as_stored(metrics) and self._repeats(trial, epoch, with_it, last):
            return _answer(known.decision, record, with_it=with_it)
        if with_it:
            checked_next(epoch, last, record.trial)
            return None
        if record.live:
            return "pause"  # another worker has it, or it waits to be handed out again
        if _is_newest(trial, record) and _ended_by_itself(record):
            raise ReportError(
                f"epochs are reported while a trial runs, got epoch {epoch} of trial {record.trial}, "
                f"which is {record.status}; ask for the next trial"
            )
        return "stop"

    def record(
        self, trial: AskedTrial | str, epoch: int, metrics: dict[str, Any], *, saved: bool | None = None
    ) -> Answer:
        """Record a report; `saved` says whether its checkpoint is in the run folder, None if it has none."""
        known = known_trial(self._loop.record, trial)
        saves = saved is not None or bool(known.checkpoints)
        self._driver.hear(known.trial)
        decision = self._loop.report(known.trial, epoch, metrics, saved=[epoch] if saved else [], saves=saves)
        self._last[known.trial] = epoch
        if decision is Decision.CONTINUE and self._driver.parts(known.trial):
            return "pause"
        return _ANSWERS[decision]

    def save(self, trial: AskedTrial | str, epoch: int, folder: Path, metrics: dict[str, Any]) -> bool:
        """Copy an epoch's checkpoint into the run; returns whether that worked. A full disk pauses the search."""
        name = known_trial(self._loop.record, trial).trial
        try:
            self._store.write(name, epoch, copied(folder), {epoch: metrics})
        except OSError as error:
            with self._driver.working():
                if no_space(error):
                    self._loop.not_saved(name, epoch)
                else:
                    self._loop.notice(f"the checkpoint of epoch {epoch} of trial {name} was not saved: {error}")
            return False
        return True

    def _repeats(self, trial: AskedTrial | str, epoch: int, with_it: bool, last: int) -> bool:
        """Whether a recorded epoch may be reported again, as by a client that didn't get its answer."""
        if not with_it:
            return True
        first = trial.from_epoch if isinstance(trial, AskedTrial) else 0
        return first < epoch <= last


def _answer(decision: str, record: TrialRecord, *, with_it: bool) -> Answer:
    """The answer that a report got, unless since then the trial has ended or left its worker."""
    answer = _ANSWERS[Decision(decision)]
    if answer != "continue" or with_it:
        return answer
    return "pause" if record.live else "stop"


def _is_newest(trial: AskedTrial | str, record: TrialRecord) -> bool:
    """Whether the trial was not handed out since."""
    return not isinstance(trial, AskedTrial) or trial.attempt == len(record.entered)


def _ended_by_itself(record: TrialRecord) -> bool:
    """Whether the worker knows that the trial has ended: it got this answer, or reported the end itself."""
    newest = record.epochs.get(record.epoch)
    told = newest is not None and newest.decision == "stop"
    return told or record.status == "completed" or (record.status == "failed" and record.cause in CAUSES)
