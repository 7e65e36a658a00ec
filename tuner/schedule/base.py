"""The base classes of schedulers: a declaration in the study file, and the early stopper that it builds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tuner.errors import StudyError, shown
from tuner.space.mode import Mode
from tuner.space.values import is_number

DEFAULT_GRACE_EPOCHS = 3


class Decision(Enum):
    """What a trial does after a report."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"


class EarlyStopper(ABC):
    """Decides after each report; knows trials only by id. A trial's epochs arrive in order."""

    def start(self, trial_id: str) -> None:  # noqa: B027 -- most need not know
        """A new trial was started."""

    def trust(self, trial_id: str) -> None:  # noqa: B027
        """The trial that was started has a configuration that did well in earlier studies."""

    def price(self, trial_id: str, value: float) -> None:  # noqa: B027 -- see `Scheduler.takes_two_objectives`
        """The trial's value of the second objective, of which higher is better; known before its first report."""

    def report(self, trial_id: str, epoch: int, value: float) -> Decision:
        """What the trial does after this epoch. Raises ValueError for a value that is NaN or infinite."""
        if not math.isfinite(value):
            raise ValueError(
                f"an early stopper needs finite values, got {shown(value)} from trial {trial_id!r} at epoch {epoch}; "
                "end the trial as failed instead"
            )
        return self._judge(trial_id, epoch, value)

    @abstractmethod
    def _judge(self, trial_id: str, epoch: int, value: float) -> Decision:
        """The rule itself; `value` is finite."""

    def end(self, trial_id: str) -> None:  # noqa: B027
        """The trial is over: completed, failed, or stopped (by this object's decision too).

        Keep its values: others are still compared with them, and `restart` may follow.
        """

    def restart(self, trial_id: str) -> None:  # noqa: B027 -- most need not know
        """The trial failed, which ended it, and runs again; epochs that were reported are not reported again."""

    def resumable(self) -> str | None:
        """A paused trial that goes on now, each handed out once; None if there is none."""
        return None

    def eliminated(self) -> list[str]:
        """Paused trials that will never go on, each named once."""
        return []

    def more_coming(self, coming: bool) -> None:  # noqa: B027
        """Whether new trials may still start; brackets that wait for more members close when none will."""

    def expect(self, trials: int | None) -> None:  # noqa: B027
        """A limit was changed while the search runs: at most this many more trials will start, None for no limit."""


@dataclass(frozen=True)
class Scheduler(ABC):
    """The declaration of how weak trials are stopped early; `build` makes the object that has a state."""

    @abstractmethod
    def check(self, max_epochs: int) -> None:
        """Raise StudyError for settings that leave nothing to stop in trials of `max_epochs`."""

    def advice(self, max_epochs: int) -> str | None:
        """A sentence about a setting that is allowed but costly; None if there is none."""
        return None

    @property
    def takes_two_objectives(self) -> bool:
        """Whether its early stoppers compare trials by both objectives of a study that has two."""
        return False

    @abstractmethod
    def rungs(self, max_epochs: int) -> list[int]:
        """Epochs after which trials may be paused or stopped, in order.

        Trials that can save do so at these epochs in any case, and the search's model uses the values there.
        """

    @property
    def forecast(self) -> dict[str, Any]:
        """What run.json says of it, so that the time left can be computed: fields of `Ahead` in results.

        A rule of its own isn't simulated: how long trials were that have ended says how long others will be.
        """
        return {"own_rule": True}

    @abstractmethod
    def build(self, *, mode: Mode, max_epochs: int, can_pause: bool, trials: int | None) -> EarlyStopper:
        """The early stopper for one search; if trials can't pause it never says PAUSE."""


@dataclass(frozen=True)
class NoEarlyStopping(Scheduler):
    """Every trial is trained to its end."""

    @property
    def takes_two_objectives(self) -> bool:
        """True: it compares nothing."""
        return True

    def check(self, max_epochs: int) -> None:
        """Every setting is valid."""

    def rungs(self, max_epochs: int) -> list[int]:
        """There are no rungs."""
        return []

    def build(self, *, mode: Mode, max_epochs: int, can_pause: bool, trials: int | None) -> EarlyStopper:
        """An early stopper that lets every trial go on."""
        return _LetAll()


class _LetAll(EarlyStopper):
    def _judge(self, trial_id: str, epoch: int, value: float) -> Decision:
        return Decision.CONTINUE


@dataclass(frozen=True)
class Halving(Scheduler):
    """At rungs of grace_epochs · reduction_factor^k epochs only the best 1/reduction_factor of the trials go on."""

    grace_epochs: int | None = None
    reduction_factor: float = 3

    def check(self, max_epochs: int) -> None:
        """Raise StudyError for a grace period or reduction factor that can't work."""
        kind = type(self).__name__
        check_grace(kind, self.grace_epochs, max_epochs)
        if not is_number(self.reduction_factor) or self.reduction_factor < 2:
            raise StudyError(
                f"{kind}.reduction_factor needs a number of at least 2, got {shown(self.reduction_factor)}; use 3 to "
                "keep a third at each rung"
            )

    def rungs(self, max_epochs: int) -> list[int]:
        """The first epochs at or after grace_epochs · reduction_factor^k, below `max_epochs`: 3, 9, 27, …"""
        grace = effective_grace(self.grace_epochs, max_epochs)
        rungs: list[int] = []
        with suppress(OverflowError):  # too large for a float: beyond the last epoch
            while (epoch := math.ceil(grace * self.reduction_factor ** len(rungs))) < max_epochs:
                rungs.append(epoch)
        return rungs

    @property
    def takes_two_objectives(self) -> bool:
        """True: at a rung, trials rank by `tuner.space.pareto.order`."""
        return True

    @property
    def forecast(self) -> dict[str, Any]:
        """Its rule is simulated."""
        return {"reduction_factor": self.reduction_factor}


def rung_at(rungs: Sequence[int], epoch: int) -> int | None:
    """Index of the highest rung that a trial has reached after `epoch`; None below the first."""
    return bisect_right(rungs, epoch) - 1 if rungs and epoch >= rungs[0] else None


def effective_grace(grace_epochs: int | None, max_epochs: int) -> int:
    """The grace period as declared; without one the default, clipped to what trials can reach."""
    return grace_epochs if grace_epochs is not None else max(1, min(DEFAULT_GRACE_EPOCHS, max_epochs - 1))


def check_grace(kind: str, grace_epochs: int | None, max_epochs: int) -> None:
    """Raise StudyError for a grace period that isn't a count, or leaves nothing to stop."""
    if grace_epochs is None:
        return
    if isinstance(grace_epochs, bool) or not isinstance(grace_epochs, int) or grace_epochs < 1:
        raise StudyError(f"{kind}.grace_epochs needs a whole number of at least 1, got {shown(grace_epochs)}; use 3")
    if grace_epochs >= max_epochs:
        fix = f"use at most {max_epochs - 1}" if max_epochs > 1 else "use NoEarlyStopping()"
        raise StudyError(
            f"{kind} needs a grace period below the trials' length, got grace_epochs={grace_epochs} with "
            f"max_epochs={max_epochs}, which leaves nothing to stop; {fix}"
        )
