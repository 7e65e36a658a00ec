"""The disk space of a search's checkpoints, estimated before it starts, and whether its limit and its disk have room.

The size of a checkpoint is found without training, or is that of the run's largest checkpoint so far. For a user's
function it is unknown until its first checkpoint is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.driver.rehearsal import rehearse
from tuner.errors import RunFolderError, StudyError, setting
from tuner.history.checkpoints import CheckpointStore
from tuner.history.combination import POOL
from tuner.history.records import RunRecord
from tuner.loop.room import disk_too_full, least_bytes, needed_free, round_above
from tuner.machine.hardware import this_machine
from tuner.results.front import MOST
from tuner.storage.folder import Folder
from tuner.storage.sizes import Disk
from tuner.study.budget import GB
from tuner.study.declaration import Study
from tuner.trial.speed import Speed
from tuner.worker.implementation import implementation_of

SAMPLES = 200  # configurations among which the largest checkpoint is found
MOST_PLAYED = 200  # trials; beyond that the number that waits grows in proportion
COURSES = 3  # of a search, in which good and bad configurations come in another order
ALIKE = Speed(0.0, 0.0, "", (1.0,), 0.0, 0.0, 0, 0, (0, 0, 0), 0.0, 0.0, 1.0)
Largest = tuple[int | None, dict[str, Any]]  # bytes of a checkpoint, and the configuration that has it
DECISIVE = ("optimizer", "momentum", "ema_decay", "finetune")  # hyperparameters that the size depends on
LOOK_BELOW_GB = 20.0  # with more free space a search without a limit skips this check, which loads torch


@dataclass(frozen=True)
class DiskNeed:
    """The disk space that a study's checkpoints take.

    Attributes:
        checkpoint_bytes: of the largest checkpoint; None if not known yet
        settings: hyperparameters of the configuration that has it
        workers: trials at once
        waiting: about how many trials are paused at once; None if nothing limits the number
        kept: how many of the best networks are kept to be averaged
        copied: how many networks on the front of two metrics are kept and copied, beside the winner's
    """

    checkpoint_bytes: int | None
    settings: dict[str, Any]
    workers: int
    waiting: int | None
    kept: int = 0
    copied: int = 0

    @property
    def least_bytes(self) -> int | None:
        """The fewest bytes that a search needs."""
        return None if self.checkpoint_bytes is None else least_bytes(self.checkpoint_bytes, self.workers)

    @property
    def most_bytes(self) -> int | None:
        """About the most bytes that are kept at the same time without a limit."""
        if self.least_bytes is None or self.checkpoint_bytes is None or self.waiting is None:
            return None
        return self.least_bytes + (self.waiting + self.kept + 2 * self.copied) * self.checkpoint_bytes

    def sentence(self) -> str:
        """The need in words."""
        if self.checkpoint_bytes is None:
            return "the size of a checkpoint is unknown until the first one is saved: a function decides what it saves"
        of = ", ".join(f"{name}={self.settings[name]}" for name in DECISIVE if name in self.settings)
        each = f"a checkpoint takes up to about {_told(self.checkpoint_bytes)}{f' ({of})' if of else ''}"
        least = f"at least {_told(self.least_bytes or 0)}"
        if self.most_bytes is None:
            return f"{each}; the search needs {least}, and more for each trial that waits, of which there is no limit"
        waiting = f", and {self.waiting} that wait" if self.waiting else ""
        waiting += f", and the best {self.kept} to be averaged" if self.kept else ""
        waiting += f", and {self.copied} on the front of both metrics, twice," if self.copied else ""
        return (
            f"{each}; for {self.workers} trial{'s' * (self.workers > 1)} at once{waiting} the search keeps up to "
            f"{_told(self.most_bytes)}, and needs {least}"
        )

    def record(self) -> dict[str, int | None]:
        """The need as plain data."""
        return {
            "checkpoint_bytes": self.checkpoint_bytes,
            "trials_at_once": self.workers,
            "waiting": self.waiting,
            "most_bytes": self.most_bytes,
            "least_bytes": self.least_bytes,
        }

    def check(self, limit_gb: float | None) -> None:
        """Raise StudyError if a limit is below `least_bytes`."""
        if limit_gb is None or self.least_bytes is None or self.least_bytes <= limit_gb * GB:
            return
        raise StudyError(
            f"disk_gb needs to hold three checkpoints of about {_told(self.checkpoint_bytes or 0)} for each of "
            f"{self.workers} trials at once, and the best ones, {_told(self.least_bytes)} in all, got {limit_gb:g}; "
            f"use {setting('--disk', f'{round_above(self.least_bytes / GB):g}', 'disk_gb')}, or fewer trials at once "
            f"({setting('--concurrency')})"
        )

    def notices(self, limit_gb: float | None, disk: Disk | None) -> list[str]:
        """What the user should know before the first trial."""
        found = []
        if limit_gb is not None and self.most_bytes is not None and self.most_bytes > limit_gb * GB:
            found.append(
                f"{self.sentence()}; with disk_gb={limit_gb:g} the least promising of the paused trials may end early"
            )
        most = self.most_bytes or self.least_bytes or 0
        wanted = most if limit_gb is None else min(most, limit_gb * GB)
        if disk is not None and wanted > disk.free:
            found.append(
                f"{self.sentence()}; the disk has {_told(disk.free)} free, and the search pauses before it is full"
            )
        return found


def disk_need(study: Study, workers: int, largest: Largest) -> DiskNeed:
    """What the study's checkpoints take, given the result of `largest_checkpoint`."""
    return DiskNeed(
        *largest, workers, most_waiting(study, workers), POOL if study.combine else 0, MOST - 1 if study.second else 0
    )


def most_waiting(study: Study, workers: int) -> int | None:
    """About the most trials of a study that are paused at once; None if nothing limits their number.

    All epochs take as long here, so limits on time, of which nothing is known yet, don't count.
    """
    trials = study.trials and min(study.trials, MOST_PLAYED)
    part = replace(study, budget=replace(study.budget, trials=trials, hours=None))
    courses = [rehearse(part, workers, lambda config: ALIKE, seed) for seed in range(COURSES)]
    most = max(course.waiting for course in courses)
    if most and not all(course.whole for course in courses):
        return None
    return most if study.trials is None or trials is None else -(-most * study.trials // trials)


def largest_checkpoint(study: Study) -> Largest:
    """Bytes and settings of the largest checkpoint of a study's configurations; None for what can't be known.

    Loads torch for an image classifier.
    """
    generator = np.random.default_rng(study.seed)
    configs = study.search_space.several(SAMPLES, generator) + study.starting_points
    implementation = implementation_of(study.declared_trial)
    try:
        found = implementation.checkpoint_bytes(study.declared_trial, configs, epochs=study.budget.max_epochs)
    except Exception:  # a user's model failed: it will fail in its trials, too, and say why there
        found = None
    return (None, {}) if found is None else found


def measured_checkpoint(folder: Folder, record: RunRecord) -> Largest | None:
    """Bytes and settings of the largest checkpoint that a run has; None if it has none."""
    store = CheckpointStore(folder)
    found = [(store.size(t.trial, epoch), t.config) for t in record.trials.values() for epoch in t.checkpoints]
    return max(found, key=lambda pair: pair[0], default=None)


def worth_a_look(study: Study, disk: Disk | None) -> bool:
    """Whether the disk space needed could matter to a search that is about to start."""
    return study.budget.disk_gb is not None or (disk is not None and disk.free < LOOK_BELOW_GB * GB)


def room_checked(study: Study, folder: Folder, workers: int, largest: Largest) -> list[str]:
    """What the user should know about the disk before the first trial.

    Raises StudyError if the limit is below the least that a search needs, and RunFolderError if the disk has less free
    space than a search needs to begin: it would pause at once.
    """
    need, disk = disk_need(study, workers, largest), folder.disk
    need.check(study.budget.disk_gb)
    if disk is not None and disk.free < (needed := needed_free(need.checkpoint_bytes or 0, workers, disk.total)):
        raise RunFolderError(disk_too_full(folder.uri, needed, f"{disk.free / 1e6:,.0f} MB free"))
    return need.notices(study.budget.disk_gb, disk)


def trials_at_once(study: Study) -> int:
    """How many trials this machine holds at once, as far as it is known before a search runs on it."""
    machine = this_machine()
    resources = study.resources.resolve(gpus_present=machine.gpus, uses_gpu=study.uses_gpu)
    fits = machine.cpus / resources.cpu_count
    if resources.gpu_count:
        fits = min(fits, machine.gpus / resources.gpu_count)
    return max(1, min(int(fits + 1e-9), study.trials or int(fits)))


def _told(size: int) -> str:
    unit, name = next(((unit, name) for unit, name in ((GB, "GB"), (1e6, "MB")) if size >= unit), (1e3, "kB"))
    return f"{size / unit:.3g} {name}"
