"""Which worker has which trial, and until when it must report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tuner.ask_tell.trial import AskedTrial
from tuner.history.events import Event

SECONDS = 60.0
_LEFT = ("trial_lost", "trial_retried", "trial_paused", "trial_ended")


@dataclass
class Lease:
    """A worker's right to a trial; `reported`: whether an epoch was reported since it was handed out."""

    worker: str
    trial: AskedTrial
    ends: float
    reported: bool = False


class Leases:
    """One lease for each worker that has a trial. They only run while `watched`: otherwise nobody could renew them."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._leases: dict[str, Lease] = {}
        self._watched = False

    def watch(self, watched: bool) -> None:
        """Whether workers can reach the search from now on; when they can again, each lease starts again in full."""
        if watched and not self._watched:
            for lease in self._leases.values():
                self.renew(lease)
        self._watched = watched

    def give(self, worker: str, trial: AskedTrial, *, reported: bool = False) -> Lease:
        """From now on the worker has this trial and no other."""
        lease = self._leases[worker] = Lease(worker, trial, self._clock() + self.seconds, reported)
        return lease

    def of(self, worker: str) -> Lease | None:
        """The worker's lease, if it has one."""
        return self._leases.get(worker)

    def held(self, worker: str, trial: str) -> Lease | None:
        """The worker's lease if it is for this trial."""
        lease = self._leases.get(worker)
        return lease if lease is not None and lease.trial.id == trial else None

    def renew(self, lease: Lease) -> None:
        """Renew the lease: its worker sent a request about the trial."""
        lease.ends = self._clock() + self.seconds

    def end(self, lease: Lease) -> None:
        """The worker no longer has the trial."""
        if self._leases.get(lease.worker) is lease:
            del self._leases[lease.worker]

    def expired(self) -> list[Lease]:
        """The expired leases, in the order in which they were given."""
        now = self._clock()
        return [lease for lease in self._leases.values() if self._watched and lease.ends < now]


def holders(events: Iterable[Event]) -> dict[str, str]:
    """For each trial, the worker that had it when the search was interrupted, from the run's events."""
    found: dict[str, str] = {}
    for event in events:
        if event["event"] == "trial_handed":
            found[event["trial"]] = event["worker"]
        elif event["event"] in _LEFT:
            found.pop(event["trial"], None)
    return found
