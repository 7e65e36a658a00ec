"""The supervisor's view of drivers, independent of where they run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from tuner.service.model import Device


def trials_on(devices: int, each: float) -> int:
    """How many trials that hold `each` fit on so many devices; at least one."""
    return max(1, int(devices / each + 1e-9))


@dataclass(frozen=True)
class Task:
    """The task of one driver: search the study of a file, or go on with a run.

    Attributes:
        study: path of the study file; None for a run that goes on
        run: the folder of a run that goes on
        storage: where new run folders are created
        options: that change the study, as `Study.with_options` takes them
        limits: for a run that goes on, the changed limits
        driving: how it is run, as fields of `tuner.driver.Driving`
        retry: whether failed trials of a run that goes on run again
        devices: the devices that it gets
        each: how many devices a trial holds; less than 1 for a share
        most: how many devices it can ever have; 0 if they don't change while it runs
        expected: how many it can use, if its concurrency isn't changed
        others: GPUs that it may get later
    """

    study: str | None
    run: str | None
    storage: str
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    driving: Mapping[str, Any] = field(default_factory=dict)
    retry: bool = False
    devices: tuple[Device, ...] = ()
    each: float = 1.0
    most: int = 0
    expected: int = 0
    others: tuple[Device, ...] = ()

    def as_json(self, kind: str | None = None) -> str:
        """The task in the form that `tuner.cli.detached` reads; `kind` is what its devices are, if not their own."""
        ours = ("devices", "each", "most", "expected", "others")
        told = {name: value for name, value in vars(self).items() if name not in ours}
        cpus = [device.index for device in self.devices if device.kind == "cpu"]
        allotment = self.most and {
            **{"kind": kind or self.devices[0].kind, "each": self.each, "most": self.most, "expected": self.expected},
            "devices": [device.key for device in self.devices],
        }
        return json.dumps({**told, "cpus": cpus or None, "allotment": allotment or None}, indent=2)


@dataclass(frozen=True)
class Ended:
    """How a driver says that it ended: its run's status, or an error with its kind and message."""

    status: str | None = None
    error: tuple[str, str] | None = None


@dataclass(frozen=True)
class Look:
    """A driver at one moment. `run` is its run folder, when it has one; `ended` is its last report; `rebooted`: whether
    a reboot ended it; `problem`: a sentence about why nothing newer is known.
    """

    state: Literal["starting", "running", "gone"]
    run: str | None = None
    ended: Ended | None = None
    rebooted: bool = False
    problem: str | None = None


class Executor(Protocol):
    """Starts drivers and finds them again; `folder` belongs to one start of a driver, and is kept.

    Every method except `start` may be called for a driver that another server started; one thread calls them.
    """

    def start(self, task: Task, folder: Path) -> None:
        """Start a driver; raises OSError if that can't be done."""

    def look(self, folder: Path) -> Look:
        """The driver's state; a driver of an earlier boot, or one that was never started, counts as gone."""

    def interrupt(self, folder: Path) -> None:
        """Ask it to save and end within its grace period."""

    def kill(self, folder: Path) -> None:
        """End the driver and its processes at once."""

    def log(self, folder: Path, most: int) -> bytes:
        """The end of its output, at most this many bytes."""
