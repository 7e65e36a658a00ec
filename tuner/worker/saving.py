"""When and how a trial's checkpoints are written: in the background, unless the search needs them at once.

A checkpoint that a scheduler may pause the trial on is written before its epoch is reported. One that is kept because
its epoch may be the winner's, or because the worker might die, is copied in memory and written by a thread while
training goes on; the report announces it, and a later report says that it is written.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tuner.history.checkpoints import CheckpointStore, Reports
from tuner.history.worth import FEWEST_IN_A_MEAN, late_half
from tuner.storage.locations import open_folder
from tuner.worker.assignment import Assignment

if TYPE_CHECKING:
    from tuner.train.checkpoint import Checkpoint

SAVE_AT_LEAST_EVERY_SECONDS = 60.0  # the most training time that a lost worker costs
Choice = Literal["now", "best", "safety"]


class SavingPolicy:
    """Which epochs of a trial are saved: after which it may be paused, which may be the winner's, some for safety.

    `is_leaving` says whether the worker's node is about to leave.
    """

    def __init__(self, assignment: Assignment, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._assignment, self._is_leaving = assignment, is_leaving
        self._best: float | None = None
        self._values: list[float] = []  # since the trial came to this worker
        self._saved_at = time.monotonic()

    def choose(self, epoch: int, metrics: Mapping[str, Any]) -> Choice | None:
        """Whether the epoch with these metrics is saved, and if so how: "now" means before training goes on."""
        if self._assignment.refit_epochs is not None:  # its epochs aren't compared, and the last one is shipped
            return self._chosen(epoch, epoch >= self._assignment.last)
        value = metrics.get(self._assignment.metric, math.nan)
        self._values.append(value)
        improved = self._best is None or self._beats(value, self._best)
        if improved:
            self._best = value
        return self._chosen(epoch, (improved and self._may_win(value)) or self._may_win_by_its_end(epoch))

    def _chosen(self, epoch: int, may_win: bool) -> Choice | None:
        choice = self._choice(epoch, may_win)
        if choice is not None:
            self._saved_at = time.monotonic()
        return choice

    def _choice(self, epoch: int, may_win: bool) -> Choice | None:
        last = epoch >= self._assignment.last
        if epoch in self._assignment.save_epochs and not last:
            return "now"
        if not last and self._is_leaving():
            return "now"
        if last and self._assignment.keep_last:
            return "now"
        if may_win:
            return "now" if last else "best"
        overdue = time.monotonic() - self._saved_at >= SAVE_AT_LEAST_EVERY_SECONDS
        return "safety" if overdue and not last else None

    def _may_win_by_its_end(self, epoch: int) -> bool:
        """Whether this is the last epoch, and its network may be the winner's."""
        if epoch < self._assignment.last:
            return False
        late = late_half(self._assignment.last)
        means = (sum(value / count for value in self._values[-count:]) for count in range(FEWEST_IN_A_MEAN, late + 1))
        return len(self._values) < late or any(map(self._may_win, means))

    def _may_win(self, value: float) -> bool:
        """Whether no trial that was trained to its end was better."""
        return self._assignment.to_beat is None or not self._beats(self._assignment.to_beat, value)

    def _beats(self, value: float, other: float) -> bool:
        return value > other if self._assignment.mode == "max" else value < other


@dataclass(frozen=True)
class _Job:
    epoch: int
    checkpoint: Checkpoint
    run_uri: str
    reports: Reports


class BackgroundWriter:
    """Writes checkpoints in a thread that lives as long as the worker process, and so longer than a trial.

    Per trial at most one checkpoint waits: a newer one replaces it, unless the newer one is itself `replaceable`,
    because the waiting one may be the winner's. `announce` says that one will come.
    """

    def __init__(self) -> None:
        self._announced: set[str] = set()
        self._jobs: dict[str, _Job] = {}
        self._done: dict[str, list[int]] = {}
        self._failed: dict[str, list[tuple[int, str]]] = {}
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None

    def announce(self, trial: str, *, replaceable: bool = False) -> bool:
        """A checkpoint of the trial will be submitted, for which `flush` waits; False if it isn't needed."""
        with self._changed:
            if replaceable and trial in self._jobs:
                return False
            self._announced.add(trial)
            return True

    def withdraw(self, trial: str) -> None:
        """What was announced for the trial was written elsewhere, or isn't needed."""
        with self._changed:
            self._announced.discard(trial)
            self._changed.notify_all()

    def submit(self, trial: str, epoch: int, checkpoint: Checkpoint, run_uri: str, reports: Reports) -> None:
        """Write the checkpoint soon, with the trial's last reports."""
        with self._changed:
            self._announced.discard(trial)
            self._jobs[trial] = _Job(epoch, checkpoint, run_uri, reports)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tuner-checkpoints", daemon=True)
                self._thread.start()

    def finished(self, trial: str) -> list[int]:
        """Epochs of the trial that were written since the last call."""
        with self._changed:
            return self._done.pop(trial, [])

    def failures(self, trial: str) -> list[tuple[int, str]]:
        """Epochs of the trial that could not be written since the last call, and why."""
        with self._changed:
            return self._failed.pop(trial, [])

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is left to write; False if it takes longer than `seconds`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._announced and not self._jobs and not self._busy, timeout=seconds
            )

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._jobs))
                trial = next(iter(self._jobs))
                job = self._jobs.pop(trial)
                self._busy = True
            epoch, problem = job.epoch, _write(trial, job)
            del job  # otherwise the checkpoint stays in memory until the next one comes
            with self._changed:
                if problem is None:
                    self._done.setdefault(trial, []).append(epoch)
                else:
                    self._failed.setdefault(trial, []).append((epoch, problem))
                self._busy = False
                self._changed.notify_all()


def unwritten(trial: str, epoch: int, error: BaseException) -> str:
    """The notice about a checkpoint that could not be written; it says so if the disk is full."""
    return f"the checkpoint of epoch {epoch} of trial {trial} could not be written: {error}"


def _write(trial: str, job: _Job) -> str | None:
    """Write one checkpoint into the run folder; returns what went wrong, if anything."""
    from tuner.train.checkpoint import write_checkpoint

    try:
        CheckpointStore(open_folder(job.run_uri)).write(
            trial, job.epoch, lambda folder: write_checkpoint(folder, job.checkpoint), job.reports
        )
    except Exception as error:
        return unwritten(trial, job.epoch, error)
    return None
