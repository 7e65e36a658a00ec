"""The plan with which a run was started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.console.progress import Plan
    from tuner.results import Run


def plan_of(run: Run, **limits: Any) -> Plan:
    """The plan with which a run was started, with other limits if they are given."""
    from tuner.console.progress import Plan

    return Plan.of_run(run, limits)
