"""A stay that several trials share: their heads are trained as one, until the scheduler next judges them.

Each is a trial of its own for the driver: with its reports, checkpoints and failures. Nobody waits for the driver's
answers: at the end of the stay it pauses, ends or regroups them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TrialError, describe_failure
from tuner.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tuner.train.heads import HeadBatch, HeadTrial, NotTogether
from tuner.worker.assignment import Assignment
from tuner.worker.placing import placement_here
from tuner.worker.saving import SAVE_AT_LEAST_EVERY_SECONDS, SavingPolicy

if TYPE_CHECKING:
    from tuner.train.cross_validation import CrossValidated
    from tuner.train.epoch_result import EpochResult
    from tuner.trial import ImageClassifier
    from tuner.worker.reporting import WorkerSession


def train_together(trial: ImageClassifier, assignment: Assignment, session: WorkerSession) -> None:
    """Train the trials of a stay; whatever ends all of them is raised after the others have failed, too."""
    members = [_Member(session, assignment)]
    members += [_Member(session.beside(one), one) for one in assignment.each[1:]]
    try:
        placement = placement_here(assignment)
        for member in members[1:]:
            member.session.placed(placement, 0.0)
        _train(trial, members, session)
    except NotTogether:
        session.apart()
    except Exception as error:
        for member in members[1:]:
            member.session.fail(*describe_failure(error))
        raise
    finally:
        for member in members[1:]:
            member.session.leave()


@dataclass
class _Member:
    """One of the trials; `best` is the snapshot of its best epoch, which is written at the end of the stay."""

    session: WorkerSession
    assignment: Assignment
    best: dict[int, Checkpoint] = field(default_factory=dict)
    policy: SavingPolicy = field(init=False)
    saved_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.policy = SavingPolicy(self.assignment, self.session.is_leaving)

    def report(self, batch: HeadBatch, number: int, result: EpochResult | CrossValidated) -> None:
        """Report an epoch, with its checkpoint and that of the best epoch if the stay ends here, or has lasted long."""
        epoch, metrics = batch.epoch[number], result.metrics()
        choice = self.policy.choose(epoch, metrics)
        if choice == "best":
            self.best = {epoch: batch.snapshot(number)}
        overdue = time.monotonic() - self.saved_at >= SAVE_AT_LEAST_EVERY_SECONDS
        if epoch < self.assignment.until and choice != "now" and not overdue:
            self.session.report_epoch(epoch, metrics)
            return
        fill = partial(_write, checkpoint=batch.snapshot(number)) if choice or overdue else None
        earlier = {one: partial(_write, checkpoint=kept) for one, kept in self.best.items() if one < epoch}
        self.session.report_epoch(epoch, metrics, fill=fill, earlier=earlier)
        self.best, self.saved_at = {}, time.monotonic()


def _train(trial: ImageClassifier, members: Sequence[_Member], session: WorkerSession) -> None:
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
        session.notes += batch.notes
        active = list(range(len(members)))
        while active := [one for one in active if batch.epoch[one] < members[one].assignment.until]:
            results = batch.run_epoch(active)
            for one, result in zip(active, results, strict=True):
                if not isinstance(result, TrialError):
                    members[one].report(batch, one, result)
            for one, result in zip(list(active), results, strict=True):
                if isinstance(result, TrialError):
                    members[one].session.fail(*describe_failure(result))
                    active.remove(one)
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
