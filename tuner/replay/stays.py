"""How a trial was trained, from its events: the parts of a replay, each with one setting throughout.

A trial that was paused, lost its worker or was resumed is trained in one piece here: resumed training equals
uninterrupted training. It is split only where something changed that affects the curve: the number of threads, the way
of taking steps, and halved micro-batches. The replay then saves where the setting changed, and goes on from there with
the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from tuner.history.records import EpochRecord, TrialRecord, full_length
from tuner.results.run import RecordedRun
from tuner.study.declaration import Study
from tuner.worker.assignment import Assignment


@dataclass(frozen=True)
class Stay:
    """A part of a trial: what is sent to the worker, and the epoch after which it ends."""

    assignment: Assignment
    until: int


@dataclass(frozen=True)
class Setting:
    """The settings of an epoch in addition to the configuration; None if the run doesn't say."""

    threads: int | None = None
    step_path: str | None = None
    micro_batch_size: int | None = None

    @classmethod
    def of(cls, epoch: EpochRecord) -> Setting:
        """The setting that an epoch's metrics record."""
        path = epoch.metrics.get("step_path")
        return cls(
            _count(epoch.metrics.get("threads")),
            path if isinstance(path, str) else None,
            _count(epoch.metrics.get("micro_batch_size")),
        )

    def halvings(self, batch_size: int | None) -> int:
        """How often the batch had been halved."""
        if self.micro_batch_size is None or batch_size is None:
            return 0
        return max(0, round(math.log2(batch_size / self.micro_batch_size)))


@dataclass(frozen=True)
class Way:
    """The epochs for which a trial is trained again.

    Attributes:
        start: epochs that come from a checkpoint of the run, 0 for a trial from its beginning
        until: epoch after which it ends
        length: epochs of the trial if nothing stops it, which its learning rate schedule covers
    """

    start: int
    until: int
    length: int


def way(trial: TrialRecord, longest: int, epochs: int | None, kept: Sequence[int]) -> Way:
    """What to train of a trial: all reported epochs, or `epochs`, beyond its end from its last checkpoint.

    A failed trial is trained for one more epoch, the one in which it failed. `kept` are the epochs whose checkpoints
    exist; `longest` is the budget's length of a trial.
    """
    length = full_length(trial.config, longest)
    if epochs is None:
        return Way(0, min(length, trial.epoch + 1) if trial.status == "failed" else trial.epoch, length)
    beyond = epochs > trial.epoch
    return Way(max((epoch for epoch in kept if epoch <= trial.epoch), default=0) if beyond else 0, epochs, length)


def stays(
    run: RecordedRun,
    study: Study,
    trial: TrialRecord,
    on: Way,
    *,
    cpus: int | None = None,
    gpus: float = 0,
    keep: bool = False,
) -> list[Stay]:
    """The parts in which the trial is trained, in their order.

    Args:
        run: the trial's run
        study: with which the trial was started
        trial: the trial to train
        on: where training starts and ends
        cpus: threads; None for those that the trial had
        gpus: number of GPUs that it gets
        keep: whether the checkpoint of the last epoch stays
    """
    whole = _assignment(run, study, trial, gpus)
    batch_size = _batch_size(study, trial)
    found: list[Stay] = []
    parts = _parts(trial, on) if study.declared_trial.reproduced is not None else [(Setting(), *_whole(on))]
    for setting, first, last, length in parts:
        halvings = trial.memory_losses if whole.strategy else setting.halvings(batch_size)
        assignment = replace(
            whole,
            config=_lengthened(whole.config, length),
            epochs=length,
            reported=first - 1,
            cpus=_cpus(whole, setting, cpus),
            step_path=setting.step_path if gpus else None,
            halvings=halvings,
        )
        found.append(Stay(assignment, last))
    return [_saving(stay, at_end=keep or stay is not found[-1]) for stay in found]


def _whole(on: Way) -> tuple[int, int, int]:
    """First and last epoch, and length, if nothing is known about settings: a function has its own."""
    return on.start + 1, on.until, max(on.length, on.until)


def _parts(trial: TrialRecord, on: Way) -> Iterator[tuple[Setting, int, int, int]]:
    """Setting, first and last epoch of each part, and the trial's length as far as that matters."""
    setting, each = Setting(), []
    for epoch in range(1, on.until + 1):
        setting = Setting.of(trial.epochs[epoch]) if epoch in trial.epochs else setting
        each.append((setting, on.until if epoch > on.length else on.length))
    first = on.start + 1
    for (alike, length), group in groupby(each[on.start :]):
        count = len(list(group))
        yield alike, first, first + count - 1, length
        first += count


def _assignment(run: RecordedRun, study: Study, trial: TrialRecord, gpus: float) -> Assignment:
    resources = run.info["resources"]
    return Assignment(
        trial=trial.trial,
        config=study.search_space.restored(trial.config),
        seed=trial.seed,
        epochs=0,
        save_epochs=[],
        metric=study.metric,
        mode=study.mode,
        study_seed=study.seed,
        cpus=resources.get("cpus") or 1,
        gpus=gpus,
        run_uri="",
        working_folder=study.working_folder,
        hung_seconds=study.failures.hung_seconds,
        strategy=trial.config.get("strategy", resources.get("strategy")),
        to_beat=math.inf if study.mode == "max" else -math.inf,  # so that no epoch is kept as a possible winner
    )


def _saving(stay: Stay, *, at_end: bool) -> Stay:
    if not at_end:
        return stay
    return Stay(replace(stay.assignment, save_epochs=[stay.until], keep_last=True), stay.until)


def _cpus(whole: Assignment, setting: Setting, given: int | None) -> float:
    """CPUs of the trial; if it has several processes, the recorded threads are those of one process."""
    if given is not None:
        return given
    return whole.cpus if setting.threads is None or whole.strategy else setting.threads


def _batch_size(study: Study, trial: TrialRecord) -> int | None:
    """Images of a step; None for a trial that has none."""
    row = study.declared_trial.known_hyperparameters.get("batch_size")
    value = trial.config.get("batch_size", None if row is None else row.default)
    return _count(value)


def _lengthened(config: dict[str, Any], length: int) -> dict[str, Any]:
    """The configuration for a trial that goes on after its own last epoch."""
    own = config.get("epochs")
    return {**config, "epochs": length} if isinstance(own, int) and own < length else config


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
