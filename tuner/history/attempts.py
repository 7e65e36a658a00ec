"""The failures of a trial after which it was tried again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LOST = "lost"
DRAINED = "drained"  # the cause of a trial that left a node before the node was gone: not a failure
USED = "used"  # the kind of a failure on a worker that had run other trials: maybe not the trial's own


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a trial that failed: when (seconds since 1970), after which epoch, and why.

    `kind` is the field of `Failures` that it counts for, "" for a failure after which the user had it run again.
    """

    time: float
    epoch: int
    kind: str
    cause: str
    message: str
    traceback: str | None


@dataclass(slots=True)
class Attempts:
    """All failed tries of a trial, in their order.

    `waiting` says that the next try has not begun yet; `alone` that the trial has its device to itself from now on.
    """

    failed: list[Attempt] = field(default_factory=list)
    forgiven: int = 0  # how many of the first ones don't count, because the user ran the trial again
    waiting: bool = False
    followed: int = 0  # how many of `failed`, from the first on, another try followed
    alone: bool = False

    def add(self, failure: dict[str, Any], *, time: float, epoch: int, kind: str) -> None:
        """A try has failed, and another one will follow unless there were too many."""
        cause, message = failure.get("cause") or LOST, failure.get("message") or ""
        self.failed.append(Attempt(time, epoch, kind, cause, message, failure.get("traceback")))
        self.waiting = True

    def begin(self) -> None:
        """The next try begins, or the first one."""
        self.waiting, self.followed = False, len(self.failed)

    @property
    def tried_again(self) -> list[Attempt]:
        """The failures that another try followed; the last failure may have ended the trial."""
        return self.failed[: self.followed]

    @property
    def needs_fresh_worker(self) -> bool:
        """Whether the next try needs a worker that has run nothing yet."""
        return self.waiting and self.last.kind == USED

    def forgive(self) -> None:
        """The user runs the trial again: failures before that no longer count."""
        self.forgiven, self.alone = len(self.failed), False

    def count(self, kind: str) -> int:
        """How many failures of this kind count."""
        return sum(attempt.kind == kind for attempt in self.failed[self.forgiven :])

    @property
    def last(self) -> Attempt:
        """The newest failure; there must be one."""
        return self.failed[-1]

    @property
    def due(self) -> Attempt | None:
        """The failure that ends the trial if its next try never begins; None if it only lost or left its worker."""
        return self.last if self.waiting and self.last.kind not in (LOST, DRAINED) else None
