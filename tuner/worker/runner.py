"""The worker's side: run one trial inside a Ray actor that was, and will be, used for others.

A worker imports torch once and then runs trial after trial. Nothing of one trial reaches the next: `clean_process` puts
the process back, and a user's function is unpickled anew for each trial, so that its module globals are fresh too.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import cloudpickle, tune
from ray.tune.trainable import wrap_function

from tuner import session
from tuner.errors import context_is_dead, describe_failure
from tuner.results.events import plain
from tuner.results.folder import open_folder
from tuner.study import STUDY_MODULE
from tuner.temporary import OwnedFolder
from tuner.trial import FunctionTrial, ImageClassifier, Trial
from tuner.worker.process import clean_process
from tuner.worker.saving import (
    SAVED,
    BackgroundWriter,
    SavingPolicy,
    whole_saves,
)

if TYPE_CHECKING:
    from tuner.train.checkpoint import Checkpoint

REPORT = "tuner_report"
SECONDS_FOR_WRITING = 10.0
WRITER = BackgroundWriter()  # of this worker process


@dataclass(frozen=True)
class Order:
    """What one trial is told; travels as the config of a Ray trial.

    `save_epochs` are epochs after which the scheduler may pause the trial, so that a checkpoint must be there;
    `to_beat` is the best value of the trials that have ended: an epoch below it can't be the winner's; `halvings` says
    how often a worker was killed for the memory that this trial took.
    """

    trial: str
    config: dict[str, Any]
    seed: int
    epochs: int
    save_epochs: list[int]
    metric: str
    mode: str
    study_seed: int
    cpus: float
    gpus: float
    run_uri: str
    strategy: str | None = None
    placement: str = "pack"
    to_beat: float | None = None
    halvings: int = 0
    checkpoint_uri: str | None = None


def make_trainable(trial: Trial) -> type[tune.Trainable]:
    """What Ray Tune runs for every trial of a study: a function of an `Order` as a dict."""
    pickled, import_path = pickle_trial(trial), list(sys.path)

    def run_trial(order: dict[str, Any]) -> None:
        sys.path.extend(folder for folder in import_path if folder not in sys.path)
        perform(pickled, Order(**order))

    class TrialRunner(wrap_function(run_trial)):  # type: ignore[misc]
        def cleanup(self) -> None:
            """Called before the process ends, which may be while a checkpoint is still being written."""
            try:
                super().cleanup()
            finally:
                finish_writing()

    return TrialRunner


def finish_writing() -> None:
    """Wait for checkpoints that training did not wait for."""
    WRITER.flush(SECONDS_FOR_WRITING)


def pickle_trial(trial: Trial) -> bytes:
    """The trial for another process, with the code of the study file in it: workers can't import that file."""
    names = {getattr(function, "__module__", "") or "" for function in trial.functions}
    modules = [sys.modules[name] for name in names if name.startswith(STUDY_MODULE) and name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(trial))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def perform(pickled: bytes, order: Order) -> None:
    """Run one trial; its failure is reported rather than raised, so that the worker can be used again."""
    with clean_process(seed=order.seed, threads=max(1, int(order.cpus))):
        worker = WorkerSession(order)
        try:
            with session.activate(worker):
                _run(cloudpickle.loads(pickled), order, worker)
        except SystemExit as error:
            if worker.told_to_stop:
                raise
            worker.fail("error", f"the trial's code called exit({error.code!r}); raise an exception instead")
        except Exception as error:
            worker.fail(*describe_failure(error))
            if context_is_dead(error):
                raise
        finally:
            worker.close()


class WorkerSession:
    """Carries a trial's reports to the driver and its checkpoints to the run folder.

    `notes` are sentences for the user, sent with the next report.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._restored: Path | None = None
        self._owned = OwnedFolder("trial")
        self._temporary = self._owned.path
        self.notes: list[str] = []
        self.told_to_stop = False

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        """Send one epoch of a user's function; returns when the driver wants the trial to go on."""
        self._send({"metrics": metrics}, checkpoint)

    def report_epoch(
        self, epoch: int, metrics: dict[str, Any], checkpoint: Path | None = None, *, behind: Checkpoint | None = None
    ) -> None:
        """Send one epoch with its number, and write the checkpoint `behind` while training goes on.

        It is written only when the driver has the report: a trial never goes on from an epoch that nobody knows.
        """
        notes, self.notes = [*self.notes, *WRITER.failures(self._order.trial)], []
        message: dict[str, Any] = {"epoch": epoch, "metrics": metrics, "notes": notes}
        message["saved"] = WRITER.finished(self._order.trial)
        message["saving"] = epoch if behind else None
        if behind is not None:
            WRITER.announce(self._order.trial)
        try:
            self._send(message, checkpoint)
        finally:
            if behind is not None:
                WRITER.submit(self._order.trial, epoch, behind, self._order.run_uri)

    def checkpoint(self) -> Path | None:
        """The folder of the checkpoint that was last handed over with a report, copied to this machine."""
        if self._restored is None:
            found = tune.get_checkpoint()
            if found is None and self._order.checkpoint_uri is not None:
                found = tune.Checkpoint(self._order.checkpoint_uri)
            if found is not None:
                self._restored = Path(found.to_directory(str(self._temporary / "restored")))
        return self._restored

    def checkpoints(self) -> list[Path]:
        """All that this trial may go on from, the newest first, copied to this machine."""
        from tuner.train.checkpoint import checkpoint_epoch

        folder = open_folder(self._order.run_uri)
        found = [
            (epoch, folder.fetch(path, self._temporary / f"{SAVED}{epoch}"))
            for epoch, path in whole_saves(folder, self._order.trial)
        ]
        handed_over = self.checkpoint()
        if handed_over is not None:
            found.append((checkpoint_epoch(handed_over), handed_over))
        return [path for _, path in sorted(found, key=lambda pair: pair[0], reverse=True)]

    def new_folder(self, name: str = "checkpoint") -> Path:
        """An empty folder for a checkpoint, in place of an earlier one of that name; deleted with the session."""
        folder = self._temporary / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def fail(self, cause: str, message: str, trace: str | None = None) -> None:
        """Tell the driver that the trial is spoilt."""
        self._send({"failure": {"cause": cause, "message": message, "traceback": trace}}, None)

    def close(self) -> None:
        """Delete what the trial left on this machine."""
        self._owned.delete()

    def _send(self, message: dict[str, Any], folder: Path | None) -> None:
        checkpoint = None if folder is None else tune.Checkpoint.from_directory(folder)
        # In a list, because Ray flattens dicts; as JSON, because it is stored in Ray's own snapshots.
        try:
            tune.report({REPORT: [json.dumps(message, default=plain)]}, checkpoint=checkpoint)
        except SystemExit:
            self.told_to_stop = True
            raise


def _run(trial: Trial, order: Order, worker: WorkerSession) -> None:
    if isinstance(trial, ImageClassifier) and order.strategy in ("ddp", "pipeline"):
        from tuner.worker.several import train_on_several

        train_on_several(trial, order, worker)
    elif isinstance(trial, ImageClassifier):
        _train_classifier(trial, order, worker)
    elif isinstance(trial, FunctionTrial):
        trial.function(order.config)


def _train_classifier(trial: ImageClassifier, order: Order, worker: WorkerSession) -> None:
    from tuner.train import Trainer
    from tuner.train.checkpoint import load_first_whole
    from tuner.train.parallel import OneProcess

    strategy = OneProcess(int(order.gpus), balanced=order.strategy == "balanced_dp") if order.strategy else None
    trainer = Trainer(
        trial,
        order.config,
        epochs=order.epochs,
        seed=order.seed,
        split_seed=order.study_seed,
        device="cuda" if order.gpus else "cpu",
        strategy=strategy,
    )
    worker.notes += load_first_whole(trainer, worker.checkpoints())
    trainer.halve_micro_batch(order.halvings)
    policy, said = SavingPolicy(order), 0
    while trainer.epoch < order.epochs:
        metrics = trainer.run_epoch().metrics()
        worker.notes += trainer.notes[said:]
        said = len(trainer.notes)
        choice = policy.choose(trainer.epoch, metrics)
        if choice == "behind":
            worker.report_epoch(trainer.epoch, metrics, behind=trainer.snapshot())
        elif choice == "now":
            folder = worker.new_folder()
            trainer.save(folder)
            worker.report_epoch(trainer.epoch, metrics, folder)
        else:
            worker.report_epoch(trainer.epoch, metrics)
