"""One trial of a run and its epochs, as the run's events tell them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.history.attempts import Attempts
from tuner.history.event_lines import finite
from tuner.history.placement import Placement
from tuner.space.values import recorded

Status = Literal["running", "paused", "completed", "stopped", "interrupted", "failed"]


@dataclass(slots=True)
class EpochRecord:
    """One reported epoch."""

    epoch: int
    metrics: dict[str, Any]
    decision: str
    time: float
    ending: dict[str, Any] | None = None  # how the trial ends if the decision is to stop


FILES = "files"  # the folder of a run with a folder for each trial, in which a user's function works
FEATURES = ("model", "images", "total", "seconds", "seconds_left")  # fields of the event


@dataclass(frozen=True)
class FeatureRecord:
    """How far the features of a frozen backbone were at a `time`: those of so many of the images."""

    model: str
    images: int
    total: int
    seconds: float
    seconds_left: float
    time: float

    def left(self, now: float) -> float:
        """Seconds that it still takes."""
        return max(0.0, self.seconds_left - max(0.0, now - self.time))


@dataclass(slots=True)
class TrialRecord:
    """One trial, folded from its events; times are seconds since 1970."""

    trial: str
    number: int
    config: dict[str, Any]
    seed: int
    started: float
    configuration: int = (
        0  # which of the run's configurations it has, counted from 0 in the order of their first trials
    )
    repeats: str | None = None  # the first trial of its configuration, which it trains again with another seed
    refits: str | None = None  # the winner that it trains again on training and validation images together
    refit_epochs: int = 0  # for this many epochs
    confirms: bool = False  # requested by `tuner confirm`: part of neither the search nor its limits
    status: Status = "running"
    cause: str | None = None
    message: str | None = None
    traceback: str | None = None
    ended: float | None = None
    ended_by: str | None = None  # of a stopped trial: "early_stopping", or the limit that cut it off
    running_seconds: float = 0.0
    study_version: int = 1  # of the study file with which it was last started; changes if the file is edited
    losses: int = 0
    memory_losses: int = 0  # how many of them were workers killed for the memory they took
    attempts: Attempts = field(default_factory=Attempts)
    epochs: dict[int, EpochRecord] = field(default_factory=dict)
    checkpoints: set[int] = field(default_factory=set)  # epochs
    saved: set[int] = field(default_factory=set)  # epochs whose checkpoints arrived, also if they were deleted since
    had_last: bool = False  # of a configuration with several seeds: all networks were deleted, and this one last
    stays: list[Placement] = field(default_factory=list)  # on workers, in order; older runs don't say
    entered: list[float] = field(default_factory=list)  # when it was sent to workers, in order
    began: list[float] = field(default_factory=list)  # when its code began there, on workers that had started
    worker: str | None = None  # of a search service: the worker that asked for it last
    running_since: float | None = None
    paused: bool = False  # still true of an interrupted trial that was paused when its driver ended
    features: FeatureRecord | None = None  # where its first epoch is waiting for features, which it computes
    due: EpochRecord | None = None  # a report whose decision, to pause or stop, was not carried out yet

    @property
    def config_in_json(self) -> dict[str, Any]:
        """Its configuration as JSON holds it, see `tuner.space.values.recorded`."""
        found: dict[str, Any] = recorded(self.config)
        return found

    @property
    def suggested(self) -> bool:
        """Whether it is its configuration's first trial: neither another seed nor the refit of a winner."""
        return self.repeats is None and self.refits is None

    @property
    def live(self) -> bool:
        """Whether it can still report."""
        return self.status in ("running", "paused", "interrupted")

    @property
    def epoch(self) -> int:
        """Epochs reported so far."""
        return max(self.epochs, default=0)

    @property
    def together(self) -> int:
        """How many trials share its stay on a worker, and so the time of it."""
        return self.stays[-1].together if self.stays else 1

    def place(self, stay: Placement, waited: float, now: float) -> float:
        """It begins on a worker; returns the seconds that it waited there for another trial, which aren't its own."""
        self.stays.append(stay)
        self.began.append(now)
        if self.running_since is None:
            return 0.0
        waited = min(waited, max(0.0, now - self.running_since))
        self.running_since += waited
        self.entered[-1] += waited
        return waited

    def wait_in_start(self, seconds: float, now: float) -> None:
        """Before the first report of its present stay it waited for features; that isn't part of its start."""
        if not self.epochs or self.epochs[self.epoch].time < self.entered[-1]:
            self.entered[-1] = min(now, self.entered[-1] + seconds)

    def begin_anew(self) -> None:
        """The user runs the failed trial again: it waits for a worker, and its failure becomes one of the attempts."""
        failure = {"cause": self.cause, "message": self.message, "traceback": self.traceback}
        self.attempts.add(failure, time=self.ended or self.started, epoch=self.epoch, kind="")
        self.attempts.forgive()
        self.status, self.ended = "running", None
        self.cause = self.message = self.traceback = None

    def end_of_epoch(self, reported: float, ago: float) -> float:
        """When an epoch ended that was `reported` so many seconds later. Never before the previous epoch's end,
        although some reports take longer to the driver than others.
        """
        before = next(reversed(self.epochs.values()), None)
        return reported - ago if before is None else max(before.time, reported - ago)

    @property
    def last_checkpoint(self) -> int:
        """Epoch of the newest checkpoint, 0 if there is none."""
        return max(self.checkpoints, default=0)

    def metrics(self) -> dict[str, Any]:
        """The last epoch's metrics."""
        return self.epochs[self.epoch].metrics if self.epochs else {}

    def has_value(self, epoch: int, metric: str) -> bool:
        """Whether a number was reported after this epoch."""
        return epoch in self.epochs and finite(self.epochs[epoch].metrics.get(metric))

    def has_values(self, epoch: int, metrics: Iterable[str]) -> bool:
        """Whether numbers of all these metrics were reported after this epoch."""
        return all(self.has_value(epoch, metric) for metric in metrics)

    def values(self, metric: str) -> list[tuple[int, float]]:
        """Each epoch after which a number was reported, and the number, in the order of epochs."""
        found = ((epoch, self.epochs[epoch].metrics.get(metric)) for epoch in sorted(self.epochs))
        return [(epoch, float(value)) for epoch, value in found if value is not None and finite(value)]


def full_length(config: dict[str, Any], longest: int) -> int:
    """Epochs of a trial unless it is stopped: the budget's, or fewer if its configuration says so."""
    own = config.get("epochs")
    return min(own, longest) if isinstance(own, int) and own >= 1 else longest


def saved_epochs(trials: Iterable[TrialRecord], longest: int) -> int:
    """Epochs saved by early stopping (not by a limit): those that the trials it ended would still have trained."""
    early = (t for t in trials if t.status == "stopped" and t.ended_by in (None, "early_stopping"))
    return sum(max(0, full_length(t.config, longest) - t.epoch) for t in early)


def saved_share(trials: Iterable[TrialRecord], longest: int) -> float:
    """Epochs saved by early stopping as a share of trained and saved epochs."""
    known = list(trials)
    saved = saved_epochs(known, longest)
    return saved / (saved + sum(len(trial.epochs) for trial in known)) if saved else 0.0


def flat_config(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names: {"a": {"b": 1}} as {"a.b": 1}. Dicts that aren't of names are values."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict) and value and all(isinstance(key, str) and "." not in key for key in value):
            flat |= flat_config(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
