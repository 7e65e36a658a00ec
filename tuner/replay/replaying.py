"""Replaying a trial: collects its settings, trains it again in a child process, and compares the results."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tuner.errors import NO_REPORT, RunFolderError, TrialError
from tuner.history.checkpoints import CheckpointStore, copied
from tuner.history.records import TrialRecord
from tuner.machine.temporary import OwnedFolder
from tuner.replay.declared_study import Declared, declared
from tuner.replay.differences import differences, replayed_gpus
from tuner.replay.replayed import Replayed, ReplayedEpoch, compared
from tuner.replay.stays import Stay, Way, stays, way
from tuner.replay.training_process import trained_apart
from tuner.results.run import RecordedRun
from tuner.storage.folder import LocalFolder
from tuner.study.declaration import Study
from tuner.trial import Trial
from tuner.worker.implementation import implementation_of

METRICS, CHECKPOINT = "metrics.json", "checkpoint"


class Follower(Protocol):
    """Gets the progress of a replay."""

    def begins(self, differences: list[str], on: Way, metric: str) -> None:
        """Called with the differences, the epochs that will be trained, and the metric that is shown."""

    def on_epoch(self, epoch: ReplayedEpoch) -> None:
        """An epoch was trained."""


class Silence:
    """Ignores the progress."""

    def begins(self, differences: list[str], on: Way, metric: str) -> None:
        """Nothing."""

    def on_epoch(self, epoch: ReplayedEpoch) -> None:
        """Nothing."""


def replay(
    run: RecordedRun,
    trial_id: str,
    *,
    epochs: int | None = None,
    cpus: int | None = None,
    study: Study | None = None,
    output: str | Path | None = None,
    trust: bool = False,
    follower: Follower | None = None,
) -> Replayed:
    """Train a trial again with the same configuration, seed, split and threads, and compare the curves.

    On the CPU an image classifier gives the same curve, bit for bit, if versions, data and processor are the same, also
    if the trial was paused, lost and resumed. A function is only called with the same seed. The functions of a worker
    do the training, in their own process and without Ray. Nothing is written into the run's folder.

    Args:
        run: of the trial
        trial_id: leading zeros may be left out
        epochs: to train, in total; beyond the trial's end training goes on from its last checkpoint, or from its
            beginning if none is kept. None for the epochs that it has, and for a failed one also the next
        cpus: threads; None for as many as the trial had
        study: needed if the run was started from Python and not from a file
        output: new folder for the last checkpoint and all metrics
        trust: run the study file of a run that belongs to another user
        follower: gets the progress

    Raises:
        RunFolderError: the run has no such trial, or none with an epoch; its study is needed; or `output` isn't empty.
        StudyError: the study can't work any more (DataError, WeightsError: its files are missing).
    """
    with OwnedFolder("replay") as folder:
        plan = planned(run, trial_id, folder, epochs=epochs, cpus=cpus, study=study, output=output, trust=trust)
        follower = follower or Silence()
        follower.begins(list(plan.differences), plan.on, plan.metric)
        replayed = plan.follow(trained_apart(plan.declared_trial, plan.stays, str(folder)), follower)
        if output is not None:
            _write(Path(output), folder, plan.trial, replayed)
    return replayed


@dataclass(frozen=True)
class Plan:
    """What a replay trains, and what it is compared with.

    Attributes:
        run: of the trial
        trial: as the run records it
        found: its study
        on: where training starts and ends
        stays: the parts in which it is trained
        differences: what has changed, in sentences
    """

    run: RecordedRun
    trial: TrialRecord
    found: Declared
    on: Way
    stays: tuple[Stay, ...]
    differences: tuple[str, ...]

    @property
    def declared_trial(self) -> Trial:
        """The trial that is trained: the study's; for a winner's refit on training and validation images together."""
        declared = self.found.study.declared_trial
        return declared.refitted() if self.trial.refits else declared

    @property
    def metric(self) -> str:
        """The metric that is shown of each epoch: a refit has no validation."""
        return "train_loss" if self.trial.refits else self.run.metric

    def follow(self, messages: Generator[dict[str, Any]], follower: Follower) -> Replayed:
        """Compare the reports of `train` as they come."""
        rows: list[ReplayedEpoch] = []
        notes: dict[str, None] = {}  # each sentence once
        failure: str | None = None
        with closing(messages):  # the end of this block, for any reason, ends the process
            for message in messages:
                if "failure" in message:
                    failure = message["failure"]
                    continue
                notes |= dict.fromkeys(message["notes"])
                rows.append(self._compared(message["epoch"], message["metrics"]))
                follower.on_epoch(rows[-1])
        if failure is None and not rows and not self.on.start:  # like in the search
            failure = NO_REPORT
        return self._outcome(rows, list(notes), failure)

    def _compared(self, epoch: int, metrics: dict[str, Any]) -> ReplayedEpoch:
        before = self.trial.epochs.get(epoch)
        names = dict.fromkeys((self.metric, *(self.found.study.declared_trial.reproduced or ())))
        return compared(epoch, None if before is None else before.metrics, metrics, self.metric, list(names))

    def _wanted(self, last: int) -> int:
        """The epoch after which the trial should end: a function may end by itself, as in the run."""
        by_itself = self.trial.status == "completed" and self.found.study.declared_trial.reproduced is None
        return last if by_itself and last == self.trial.epoch else self.on.until

    def _outcome(self, rows: list[ReplayedEpoch], notes: list[str], failure: str | None) -> Replayed:
        on_cpu = not any(stay.assignment.gpus for stay in self.stays)
        promises = self.found.study.declared_trial.reproduced is not None
        failed = self.trial.status == "failed" and self.on.until > self.trial.epoch
        return Replayed(
            run=self.run.path,
            trial=self.trial.trial,
            metric=self.metric,
            start=self.on.start,
            wanted=self._wanted(rows[-1].epoch if rows else self.on.start),
            differences=self.differences,
            notes=tuple(notes),
            epochs=tuple(rows),
            recorded_failure=self.trial.message if failed else None,
            failure=failure,
            promised=promises and on_cpu and not self.differences,
        )


def planned(
    run: RecordedRun,
    trial_id: str,
    folder: Path,
    *,
    epochs: int | None = None,
    cpus: int | None = None,
    study: Study | None = None,
    output: str | Path | None = None,
    trust: bool = False,
) -> Plan:
    """What `replay` will train; the checkpoint from which it goes on is copied into `folder`.

    Raises as `replay` does.
    """
    trial = run.trial(trial_id)
    _check(run, trial, epochs, output)
    found = declared(run, trial, study, trust=trust)
    provide_data(found.study)
    gpus = replayed_gpus(run)
    on = _way(run, trial, found, epochs, folder)
    parts = stays(run, found.study, trial, on, cpus=cpus, gpus=gpus, keep=output is not None)
    return Plan(run, trial, found, on, tuple(parts), tuple(differences(run, trial, found, gpus=gpus, cpus=cpus)))


def _check(run: RecordedRun, trial: TrialRecord, epochs: int | None, output: str | Path | None) -> None:
    """Raise RunFolderError if there is nothing that can be trained, or no place to write to."""
    if run.info["asked"]:
        raise RunFolderError(
            f"a replay trains a trial that tuner ran, got {trial.trial} of {run.path!r}, which the user's own program "
            f"ran; run its configuration there: tuner.load_run({run.path!r}).trial({trial.trial!r}).config"
        )
    if epochs is not None and epochs < 1:
        raise RunFolderError(f"a replay needs at least one epoch, got epochs={epochs}; leave it out for all")
    if epochs is None and trial.epoch == 0 and trial.status != "failed":
        raise RunFolderError(
            f"a replay needs a trial that has reported an epoch, got {trial.trial} of {run.path!r}, which has none; "
            "name another one, or say how many with --epochs (epochs= from Python)"
        )
    if output is not None and Path(output).exists() and (not Path(output).is_dir() or any(Path(output).iterdir())):
        raise RunFolderError(f"--output needs a new or an empty folder, got {str(output)!r}; name another one")


def provide_data(study: Study) -> None:
    """Raises DataError or WeightsError if data or weights are missing and can't be downloaded."""
    trial = study.declared_trial
    trial.check_files()
    if trial.missing_downloads():
        implementation_of(trial).download(trial)


def _way(run: RecordedRun, trial: TrialRecord, found: Declared, epochs: int | None, folder: Path) -> Way:
    """What is trained, with a copy in `folder` of the checkpoint from which it goes on."""
    kept = CheckpointStore(run.folder).epochs(trial.trial)
    on = way(trial, found.study.budget.max_epochs, epochs, kept)
    while on.start:
        try:
            _copy(run, trial.trial, on.start, folder)
        except TrialError:  # damaged: the one before it may be whole
            kept = [epoch for epoch in kept if epoch < on.start]
            on = way(trial, found.study.budget.max_epochs, epochs, kept)
        else:
            break
    return on


def _copy(run: RecordedRun, trial: str, epoch: int, folder: Path) -> None:
    source = CheckpointStore(run.folder).fetch(trial, epoch, folder / "fetched")
    CheckpointStore(LocalFolder(folder)).write(trial, epoch, copied(source))


def _write(output: Path, folder: Path, trial: TrialRecord, replayed: Replayed) -> None:
    """Write the replay's last checkpoint, and everything that it reported."""
    output.mkdir(parents=True, exist_ok=True)
    store = CheckpointStore(LocalFolder(folder))
    last = replayed.epochs[-1].epoch if replayed.epochs else 0
    if store.has(trial.trial, last):
        copied(store.fetch(trial.trial, last, folder))(output / CHECKPOINT)
    rows = [{"epoch": epoch.epoch, **epoch.metrics} for epoch in replayed.epochs]
    content = {"run": replayed.run, "trial": trial.trial, "config": trial.config_in_json, "epochs": rows}
    (output / METRICS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
