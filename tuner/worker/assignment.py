"""What the driver sends to the worker of one trial."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

REPORT = "tuner_report"  # the only key of a worker's reports to Ray


@dataclass(frozen=True)
class Assignment:
    """What the driver sends to the worker of one trial, as the config of a Ray trial.

    `reported` epochs of the trial are recorded: it goes on from the newest checkpoint of these and not from a later
    one, because an unrecorded epoch would then be missing. `save_epochs` are epochs after which the scheduler may pause
    the trial, so that it needs a checkpoint; `to_beat` is the best worth of the trials that were trained to their end:
    an epoch below it can't be the winner's; `halvings` says how often a worker was killed for the memory that this
    trial took. `device` is the GPU that it shares with others, as a value of CUDA_VISIBLE_DEVICES, and `gpus` then its
    share of the GPU's memory; None if Ray has chosen the GPUs. A replay sets the `step_path` that the trial had found,
    and `keep_last` if it needs a checkpoint of the last epoch to go on after it. `refit_epochs` are those of the
    winner's refit, which trains on training and validation images together; it ends before the schedule does if
    `epochs` is larger. A trial without a report for `hung_seconds` is killed. Nodes of a cluster that was `joined` may
    be drained. A trial that failed on a worker of earlier trials needs a `fresh` one. `others` are trained in the same
    stay: the fields in which their assignments differ. `working_folder` says in which folder a user's function works.
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
    reported: int = 0
    device: str | None = None
    step_path: str | None = None
    keep_last: bool = False
    hung_seconds: float | None = None
    joined: bool = False
    fresh: bool = False
    refit_epochs: int | None = None
    working_folder: str = "shared"
    others: list[dict[str, Any]] = field(default_factory=list)

    @property
    def each(self) -> list[Assignment]:
        """The trials of this stay, each with an assignment of its own."""
        return [replace(self, others=[]), *(replace(self, **other, others=[]) for other in self.others)]

    @property
    def until(self) -> int:
        """The epoch after which a trial that shares its stay leaves it: the next one that the scheduler judges."""
        return min([epoch for epoch in self.save_epochs if epoch > self.reported] + [self.last])

    @property
    def last(self) -> int:
        """The trial's last epoch."""
        return self.epochs if self.refit_epochs is None else self.refit_epochs
