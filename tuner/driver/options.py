"""How one driver works, independent of the study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.history.events import Listener
from tuner.lifecycle.allotment import Allotment
from tuner.lifecycle.interruption import GRACE_SECONDS
from tuner.machine.hardware import Machine, this_machine


@dataclass(frozen=True)
class Driving:
    """The settings that `run` and `resume` share; each driver of a run has its own.

    Attributes:
        concurrency: the most trials at once
        address: of an existing Ray cluster
        wandb: "online", "offline" or "off"; None for online if the user is logged in
        mlflow: the address of an MLflow server, or "off"
        nice: is added to the workers' niceness, which lowers their priority
        grace: seconds that the search may take to save and end after a signal; 25 by default
        listeners: their `on_event` is called for every event while the search runs
        notify: web addresses and commands that get messages about the end and new best values, see
            `tuner.lifecycle.targets`
        begun: called with the run's path as soon as its folder exists
        allotment: the devices that a service lends this driver, if they change while it searches
    """

    concurrency: int | None = None
    address: str | None = None
    wandb: str | None = None
    nice: int | None = None
    grace: float | None = None
    listeners: Sequence[Listener] = ()
    notify: Sequence[str] = ()
    mlflow: str | None = None
    begun: Callable[[str], None] = lambda path: None
    allotment: Allotment | None = None

    @property
    def machine(self) -> Machine:
        """The machine, with the CPUs that the driver may ever have."""
        lent = self.allotment is not None and self.allotment.kind == "cpu"
        return replace(this_machine(), cpus=self.allotment.most) if lent and self.allotment else this_machine()

    @property
    def first_at_once(self) -> int | None:
        """The most trials at once while it has the devices with which it starts."""
        return min(
            [each for each in (self.concurrency, self.allotment and self.allotment.at_once) if each], default=None
        )

    @property
    def grace_seconds(self) -> float:
        """The value of `grace`, or its default."""
        return GRACE_SECONDS if self.grace is None else self.grace


DEFAULT = Driving()
