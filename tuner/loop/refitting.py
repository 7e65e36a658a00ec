"""The winner trained again on training and validation images together, as the last trial of a search (`Study.refit`).

It depends only on the record, so that a later driver goes on with it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tuner.errors import RunFolderError
from tuner.history.records import RunRecord
from tuner.history.refits import SUPERSEDED, Refit, refit_of, shipped_refit
from tuner.history.trial_record import TrialRecord
from tuner.loop.limits import STOP, Limits
from tuner.loop.packing import Place, Refusal, Wait
from tuner.loop.queue import Entry, Queue
from tuner.loop.refit_cost import refit_wanted
from tuner.results.run import RecordedRun
from tuner.results.wording import outcome, plural
from tuner.study.declaration import Study
from tuner.text import command


def due_refit(study: Study, record: RunRecord, limits: Limits) -> Refit | None:
    """The refit that is still to be trained, or continued, when the search is done; None if there is none.

    One that failed, or that a user has ended, doesn't start again; one that a limit has ended does, if a later driver
    has a larger budget.
    """
    found = refit_of(record) if refit_wanted(study, record) else None
    if found is None or found.done is not None or limits.ends_refit() is not None:
        return None
    last = found.last
    over = last is not None and (last.status in ("completed", "failed") or last.ended_by == STOP)
    return None if over and found.going_on is None else found


def check_refittable(run: RecordedRun) -> Refit:
    """The refit that `tuner refit` would train; raises RunFolderError if there is none."""
    if run.info["asked"]:
        raise RunFolderError(
            "refit needs trials that tuner trains, got a search whose trials your own program asks for; "
            "train the best again there, on all images"
        )
    found = refit_of(run.record)
    if found is None or (run.record.ended is not None and run.record.best_ended_trial is None):
        raise RunFolderError(
            "refit needs a run with a winner, got one in which no trial has a value; "
            f"see why: {command('show', run.path)}"
        )
    if found.done is not None and not run.record.confirming.own:
        raise RunFolderError(
            f"refit trains a winner once, got a run whose winner, trial {found.winner.trial}, trial {found.done.trial} "
            f"has trained again; to use its own network again: {command('refit', run.path, '--undo')}"
        )
    if found.done is not None:
        _check_kept(found.done, found.epochs)
    last = found.last
    if last is not None and last.status == "failed":
        raise RunFolderError(
            f"a refit that failed can run again by retry, got trial {last.trial}, {outcome(last)}; "
            f"use: {command('retry', run.path, '--trial', last.trial)}"
        )
    return found


def check_undoable(run: RecordedRun) -> TrialRecord:
    """The trial whose network is in `best/` in place of the winner's; raises RunFolderError if there is none."""
    refit, found = shipped_refit(run.record), refit_of(run.record)
    if refit is None or found is None or run.record.ended is None:
        raise RunFolderError(
            "refit --undo needs a run whose search has ended and that ships a refitted network, got "
            f"{run.path!r}, which doesn't; see it with: {command('show', run.path)}"
        )
    _check_kept(found.winner, found.epochs)
    return refit


def _check_kept(trial: TrialRecord, epoch: int) -> None:
    if epoch not in trial.checkpoints:
        raise RunFolderError(
            f"only a network whose checkpoint is kept can ship, got that of trial {trial.trial}, which was deleted; "
            "train its configuration in a new study, by start_from"
        )


def refit_cost(run: RecordedRun) -> str:
    """What `tuner refit` will train, in a sentence; raises RunFolderError as `check_refittable` does."""
    found = check_refittable(run)
    if found.done is not None:
        return f"puts the network of trial {found.done.trial}, which has already trained the winner again, into best/"
    return (
        f"trains the winner, trial {found.winner.trial}, again for {plural(found.epochs, 'epoch')} on training and "
        "validation images together, so that no image is left to validate it"
    )


class Refitting:
    """Says when the winner is trained again, or why it wasn't. `notice` tells the user something, with a `code`."""

    def __init__(
        self, study: Study, record: RunRecord, queue: Queue, limits: Limits, notice: Callable[..., None]
    ) -> None:
        self._study, self._record, self._queue, self._limits = study, record, queue, limits
        self._notice = notice
        self._refused = False  # no device has room for it

    def due(self) -> Refit | None:
        """The refit that remains to be done when all else is finished."""
        return None if self._refused else due_refit(self._study, self._record, self._limits)

    def next(self) -> tuple[Entry, Place | None] | None:
        """The trial that starts now, and where; call it when nothing else runs or will run."""
        due = self.due()
        if due is None:
            return None
        entry = self._queue.refit(due)
        place = self._queue.place(entry)
        if isinstance(place, Refusal):
            self._refused = True
            return None
        return None if isinstance(place, Wait) else (entry, place)

    def goes_on(self, running: Iterable[str]) -> bool:
        """Whether one of these trials is a refit that no limit ends."""
        any_refit = any(self._record.trials[trial].refits is not None for trial in running)
        return any_refit and self._limits.ends_refit() is None

    def end_others(self, end: Callable[..., None]) -> None:
        """End the refits that wait, except for the one that is due."""
        if not self._record.refits:
            return
        due = self.due()
        for trial in [one for one in self._record.trials.values() if one.live and one.refits is not None]:
            if due is None or due.going_on is not trial:
                end(trial.trial, status="stopped", by=self._limits.ends_refit() or SUPERSEDED)

    def say_why_not(self) -> None:
        """At the end of the search: say that `best/` has the winner's own network although a refit was wanted."""
        found = refit_of(self._record) if refit_wanted(self._study, self._record) else None
        if found is None or found.done is not None:
            return
        message = (
            f"the winner was not trained again on training and validation images together ({self._why_not(found)}); "
            "best/ has its network as the search trained it"
        )
        if message not in self._record.notices:
            self._notice(message, code="not_refitted")

    def _why_not(self, found: Refit) -> str:
        last = found.last
        if last is not None and last.status == "failed":
            return f"trial {last.trial} {outcome(last)}: {last.message}"
        if last is not None and last.status == "completed":
            return f"the checkpoint of trial {last.trial} was not written"
        if self._refused:
            return "no device has room for it"
        return f"it was ended by: {(last and last.ended_by) or self._limits.ends_refit() or STOP}"
