"""How one driver works, whatever it searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.history.events import Listener
from tuner.lifecycle.interruption import GRACE_SECONDS


@dataclass(frozen=True)
class Driving:
    """What `run` and `resume` share; each driver of a run has its own.

    Attributes:
        concurrency: trials at once, at most
        address: of an existing Ray cluster
        wandb: "online", "offline" or "off"; None for online where the user is logged in
        nice: niceness that is added to that of the workers, which lowers their priority
        grace: seconds that the search may take to end in order after a signal; 25 by default
        listeners: their `on_event` is called for every event while the search runs
        notify: web addresses and commands that are told of the end and of new bests, see `tuner.notify`
        begun: called with the run's path as soon as its folder is there
    """

    concurrency: int | None = None
    address: str | None = None
    wandb: str | None = None
    nice: int | None = None
    grace: float | None = None
    listeners: Sequence[Listener] = ()
    notify: Sequence[str] = ()
    begun: Callable[[str], None] = lambda path: None

    @property
    def grace_seconds(self) -> float:
        """What `grace` comes to."""
        return GRACE_SECONDS if self.grace is None else self.grace


DEFAULT = Driving()
