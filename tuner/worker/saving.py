"""When a trial's checkpoints are written, and how: behind its back wherever the search can wait for them.

A checkpoint that a scheduler may pause the trial on is handed over with the report. One that is kept because its epoch
may be the winner's, or because the worker might die, is copied in memory and written by a thread while training goes
on; the report says that it is coming, a later one that it is there. On disk it is `tune/<trial>/saved_<epoch>/`, whole
once its index is there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tuner.results.folder import Folder, LocalFolder, open_folder
from tuner.temporary import OwnedFolder

if TYPE_CHECKING:
    from tuner.train.checkpoint import Checkpoint
    from tuner.worker.runner import Order

SAVE_AT_LEAST_EVERY_SECONDS = 60.0  # of training that a lost worker costs at most
SAVED = "saved_"
INDEX = "training.json"  # written last


def saved_path(trial: str, epoch: int) -> str:
    """Where in the run folder a worker writes a trial's checkpoint of an epoch."""
    return f"tune/{trial}/{SAVED}{epoch:06d}"


class SavingPolicy:
    """Which epochs of a trial are saved: those it may be paused at, those that may be the winner's, some for safety."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._best: float | None = None
        self._saved_at = time.monotonic()

    def choose(self, epoch: int, metrics: Mapping[str, Any]) -> Literal["now", "behind"] | None:
        """Whether the epoch with these metrics is saved, and if so before training goes on or while it does."""
        value = metrics.get(self._order.metric, math.nan)
        improved = self._best is None or self._beats(value, self._best)
        if improved:
            self._best = value
        overdue = time.monotonic() - self._saved_at >= SAVE_AT_LEAST_EVERY_SECONDS
        last = epoch >= self._order.epochs
        if epoch in self._order.save_epochs and not last:
            choice: Literal["now", "behind"] | None = "now"
        elif improved and self._may_win(value):
            choice = "now" if last else "behind"
        else:
            choice = "behind" if overdue and not last else None
        if choice is not None:
            self._saved_at = time.monotonic()
        return choice

    def _may_win(self, value: float) -> bool:
        """Whether no trial that has ended was better."""
        return self._order.to_beat is None or not self._beats(self._order.to_beat, value)

    def _beats(self, value: float, other: float) -> bool:
        return value > other if self._order.mode == "max" else value < other


class BackgroundWriter:
    """Writes checkpoints in a thread that lives as long as the worker process, and so longer than a trial.

    Of a trial the newest checkpoint that isn't begun replaces an older one. `announce` says that one will come.
    """

    def __init__(self) -> None:
        self._announced: set[str] = set()
        self._jobs: dict[str, tuple[int, Checkpoint, str]] = {}
        self._done: dict[str, list[int]] = {}
        self._failed: dict[str, list[str]] = {}
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None

    def announce(self, trial: str) -> None:
        """A checkpoint of the trial will be submitted; `flush` waits for it."""
        with self._changed:
            self._announced.add(trial)

    def submit(self, trial: str, epoch: int, checkpoint: Checkpoint, run_uri: str) -> None:
        """Write it soon."""
        with self._changed:
            self._announced.discard(trial)
            self._jobs[trial] = (epoch, checkpoint, run_uri)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tuner-checkpoints", daemon=True)
                self._thread.start()

    def finished(self, trial: str) -> list[int]:
        """Epochs of the trial that were written since the last call."""
        with self._changed:
            return self._done.pop(trial, [])

    def failures(self, trial: str) -> list[str]:
        """What went wrong for the trial since the last call."""
        with self._changed:
            return self._failed.pop(trial, [])

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is left to write; False if so many seconds weren't enough."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._announced and not self._jobs and not self._busy, timeout=seconds
            )

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._jobs))
                trial = next(iter(self._jobs))
                epoch, checkpoint, run_uri = self._jobs.pop(trial)
                self._busy = True
            try:
                write_to_run(open_folder(run_uri), saved_path(trial, epoch), checkpoint)
                results, result = self._done, epoch
            except Exception as error:
                results, result = self._failed, f"the checkpoint of epoch {epoch} could not be written: {error}"  # type: ignore[assignment]
            with self._changed:
                results.setdefault(trial, []).append(result)
                self._busy = False
                self._changed.notify_all()


def write_to_run(folder: Folder, path: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into the run folder, its index last."""
    from tuner.train.checkpoint import write_checkpoint

    if isinstance(folder, LocalFolder):
        write_checkpoint(folder.path / path, checkpoint)
        return
    with OwnedFolder("trial") as temporary:
        write_checkpoint(temporary / "whole", checkpoint)
        for file in sorted((temporary / "whole").iterdir(), key=lambda file: file.name == INDEX):
            folder.write(f"{path}/{file.name}", file.read_bytes())


def whole_saves(folder: Folder, trial: str) -> list[tuple[int, str]]:
    """(epoch, path) of the checkpoints that workers wrote for a trial, whole ones, the newest first."""
    inside = folder.child(f"tune/{trial}")
    names = [name for name in inside.folders() if name.startswith(SAVED)]
    whole = [name for name in names if inside.exists(f"{name}/{INDEX}")]
    return sorted(((int(name.removeprefix(SAVED)), f"tune/{trial}/{name}") for name in whole), reverse=True)
