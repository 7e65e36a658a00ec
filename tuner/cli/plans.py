"""What a run that exists set out to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.console.progress import Plan
    from tuner.results import Run


def plan_of(run: Run, **limits: Any) -> Plan:
    """What a run set out to do, with other limits where they are given."""
    from tuner.console.progress import Plan

    given = {name: value for name, value in limits.items() if value is not None}
    longest = {"max_epochs": run.budget.get("max_epochs") or run.longest_trial}
    return Plan.within(run.budget | longest | given, run.name, run.metric, run.mode)
