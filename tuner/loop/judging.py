"""Decides after a report whether the trial goes on, pauses or ends, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.errors import shown
from tuner.history.event_lines import finite
from tuner.history.records import TrialRecord, full_length
from tuner.loop.limits import Limits
from tuner.loop.metric import flaw_of
from tuner.loop.stopping import Stopping
from tuner.schedule import Decision
from tuner.search import Proposals
from tuner.study.declaration import Study

CANNOT_PAUSE = (
    "trials save no checkpoint, so they can't pause and are stopped early instead; "
    "pass checkpoint=FOLDER with each report to let them pause and continue"
)
EARLY_STOPPING = "early_stopping"
Metrics = dict[str, Any]
Ending = dict[str, Any]  # fields of the event that ends a trial


class Judge:
    """Gives each report to search algorithm and early stopper, and asks what the trial does next.

    `notice` tells the user something, with a `code`.
    """

    def __init__(
        self,
        study: Study,
        proposals: Proposals,
        stopping: Stopping,
        limits: Limits,
        *,
        notice: Callable[..., None],
    ) -> None:
        self._study, self._proposals, self._stopping = study, proposals, stopping
        self._limits, self._notice = limits, notice

    def judge(
        self, record: TrialRecord, epoch: int, metrics: Metrics, *, saved: bool, saves: bool
    ) -> tuple[Decision, Ending | None]:
        """What the trial does after this report, which the record doesn't hold yet, and how the trial ends, if it ends.

        `saved`: whether its checkpoint is in the run folder; `saves`: whether the trial writes checkpoints at all.
        """
        if record.refits is not None:
            return self._judge_refit(record, epoch)
        problem = self._problem_with(metrics)
        if problem is not None:
            return Decision.STOP, {"status": "failed", "cause": problem[0], "message": problem[1]}
        value = metrics[self._study.metric]
        again = epoch in record.epochs  # after an interruption; it was judged the first time
        if record.repeats is not None:
            return self._judge_repeat(record, epoch, value, again=again)
        limit = self._limits.reached(epochs=0 if again else 1, value=value)
        decision = Decision.CONTINUE
        price = self._study.price(record.config, metrics)
        if price is not None:
            self._proposals.price(record.configuration, price)
            self._stopping.price(record.trial, price)
        if not record.has_values(epoch, self._study.reported):  # a trial that diverged here before has none yet
            self._proposals.observe(record.configuration, epoch, value)
            decision = self._stopping.report(record.trial, epoch, value)
        if epoch >= full_length(record.config, self._study.budget.max_epochs):
            return Decision.STOP, {"status": "completed"}
        if limit is not None:
            return Decision.STOP, {"status": "stopped", "by": limit}
        if decision is Decision.PAUSE and not saved:
            decision = self._without_pausing(saves)
        return decision, {"status": "stopped", "by": EARLY_STOPPING} if decision is Decision.STOP else None

    def _judge_repeat(
        self, record: TrialRecord, epoch: int, value: float, *, again: bool
    ) -> tuple[Decision, Ending | None]:
        """A configuration under another seed is trained to its end, unless a limit ends it."""
        if epoch >= full_length(record.config, self._study.budget.max_epochs):
            return Decision.STOP, {"status": "completed"}
        if record.confirms:
            limit = self._limits.ends_confirming()
        else:
            limit = self._limits.reached(epochs=0 if again else 1, value=value)
        return (Decision.CONTINUE, None) if limit is None else (Decision.STOP, {"status": "stopped", "by": limit})

    def _judge_refit(self, record: TrialRecord, epoch: int) -> tuple[Decision, Ending | None]:
        """A refit reports no metric to judge it by: it is trained for the winner's epochs, unless a limit ends it."""
        if epoch >= record.refit_epochs:
            return Decision.STOP, {"status": "completed"}
        limit = self._limits.ends_refit(epochs=0 if epoch in record.epochs else 1)
        return (Decision.CONTINUE, None) if limit is None else (Decision.STOP, {"status": "stopped", "by": limit})

    def _without_pausing(self, saves: bool) -> Decision:
        if saves:  # its checkpoint could not be written (a notice says so): a pause would lose it, so it goes on
            return Decision.CONTINUE
        self._notice(CANNOT_PAUSE, code="cannot_pause")
        return self._stopping.give_up_pausing()

    def _problem_with(self, metrics: Metrics) -> tuple[str, str] | None:
        """Cause and message of a report that ends its trial as failed."""
        for name in self._study.reported:
            if name not in metrics:
                reported = ", ".join(sorted(metrics)) or "nothing"
                return (
                    "error",
                    f"a trial must report the study's metric {name!r} after every epoch, got {reported}; report it, or "
                    "change metric=",
                )
            flaw = flaw_of(name, metrics[name])
            if flaw is not None:
                return "error", flaw
            if not finite(metrics[name]):
                return "diverged", f"{name} = {shown(metrics[name])}"
        return None
