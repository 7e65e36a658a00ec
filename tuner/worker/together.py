"""A stay that several trials share: their heads are trained as one, until the scheduler next judges them.

Each is a trial of its own for the driver: with its reports, checkpoints and failures. Nobody waits for the driver's
answers: at the end of the stay it pauses, ends or regroups them.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TrialError, describe_failure
from tuner.errors.gpu_errors import context_is_dead
from tuner.history.checkpoints import Fill
from tuner.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tuner.train.features import progress_told_to
from tuner.train.heads import HeadBatch, HeadTrial, NotTogether
from tuner.worker.assignment import Assignment
from tuner.worker.placing import placement_here
from tuner.worker.saving import SAVE_AT_LEAST_EVERY_SECONDS, SavingPolicy

if TYPE_CHECKING:
    from tuner.train.cross_validation import CrossValidated
    from tuner.train.epoch_result import EpochResult
    from tuner.trial import ImageClassifier
    from tuner.worker.reporting import WorkerSession

KEPT_SECONDS = 5.0  # for which the checkpoint of a best epoch is only kept in memory
MOST_KEPT = 4  # of a trial


def train_together(trial: ImageClassifier, assignment: Assignment, session: WorkerSession) -> None:
    """Train the trials of a stay. What ends all of them is left to each alone, unless this process is unusable."""
    members = [_Member(session, assignment)]
    members += [_Member(session.beside(one), one) for one in assignment.each[1:]]
    try:
        placement = placement_here(assignment)
        for member in members[1:]:
            member.session.placed(placement, 0.0)
        with progress_told_to(session.tell_features):
            _train(trial, members)
    except NotTogether:
        session.apart("all")
    except Exception as error:
        if context_is_dead(error):
            for member in members[1:]:
                member.session.fail(*describe_failure(error))
            raise
        traceback.print_exception(error)
        session.apart("these")
    finally:
        for member in members:
            member.leave()


@dataclass
class _Member:
    """One of the trials; `best` are snapshots of its best epochs, the last of which is still to be written."""

    session: WorkerSession
    assignment: Assignment
    best: dict[int, Checkpoint] = field(default_factory=dict)
    policy: SavingPolicy = field(init=False)
    saved_at: float = field(default_factory=time.monotonic)
    kept_since: float = math.inf

    def __post_init__(self) -> None:
        self.policy = SavingPolicy(self.assignment, self.session.is_leaving)

    def report(self, batch: HeadBatch, number: int, result: EpochResult | CrossValidated) -> None:
        """Report an epoch; with its checkpoint if the stay ends here or has lasted long, and that of the best epoch."""
        epoch, metrics, now = batch.epoch[number], result.metrics(), time.monotonic()
        choice, ends = self.policy.choose(epoch, metrics), epoch >= self.assignment.until
        whole = choice == "now" or now - self.saved_at >= SAVE_AT_LEAST_EVERY_SECONDS
        if choice == "best" and not whole:
            self._keep(epoch, batch.snapshot(number), now)
        writes = ends or whole or now - self.kept_since >= KEPT_SECONDS
        self.session.report_epoch(
            epoch,
            metrics,
            fill=partial(_write, checkpoint=batch.snapshot(number)) if whole else None,
            earlier=self._unwritten(1) if writes else None,
            later=choice == "best" and not writes,
        )
        if writes:
            self.best, self.kept_since = {}, math.inf
        if whole:
            self.saved_at = now

    def leave(self) -> None:
        """The stay is over; maybe the search has ended the trial at an epoch before those that are trained."""
        self.session.leave(self._unwritten(MOST_KEPT))

    def _keep(self, epoch: int, checkpoint: Checkpoint, now: float) -> None:
        """Some before it stay: the driver may not know of this epoch yet, and end the trial before it."""
        self.best = {one: self.best[one] for one in list(self.best)[1 - MOST_KEPT :]} | {epoch: checkpoint}
        self.kept_since = min(self.kept_since, now)

    def _unwritten(self, count: int) -> dict[int, Fill]:
        return {epoch: partial(_write, checkpoint=self.best[epoch]) for epoch in list(self.best)[-count:]}


def _train(trial: ImageClassifier, members: Sequence[_Member]) -> None:
    first = members[0].assignment
    batch = HeadBatch(
        trial,
        [HeadTrial(member.assignment.config, member.assignment.seed) for member in members],
        epochs=max(member.assignment.epochs for member in members),
        split_seed=first.study_seed,
        device="cuda" if first.gpus else "cpu",
    )
    try:
        _go_on(batch, members)
        active, said = list(range(len(members))), 0
        while active := [one for one in active if batch.epoch[one] < members[one].assignment.until]:
            results = dict(zip(active, batch.run_epoch(active), strict=True))
            active = [one for one, result in results.items() if not isinstance(result, TrialError)]
            if active:
                members[active[0]].session.notes += batch.notes[said:]
                said = len(batch.notes)
            for one, result in results.items():
                if isinstance(result, TrialError):
                    members[one].session.fail(*describe_failure(result))
                    members[one].best = {}
                else:
                    members[one].report(batch, one, result)
    finally:
        batch.close()


def _go_on(batch: HeadBatch, members: Sequence[_Member]) -> None:
    """Let each go on from its newest whole checkpoint."""
    for number, member in enumerate(members):
        for folder in member.session.checkpoints() if member.assignment.reported else ():
            try:
                batch.restore(number, read_checkpoint(folder), str(folder))
                break
            except TrialError as error:
                member.session.notes.append(f"a checkpoint is skipped: {error}")


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    write_checkpoint(folder, checkpoint)
