"""What the driver of a run does now, as far as it concerns an order."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from tuner.history.events import Event
from tuner.storage.lease import holder

if TYPE_CHECKING:
    from tuner.results.run import Run

ENDS = ("study_ended", "study_interrupted")
# It reads orders; begins to, or lets go of the run; writes winner and report, and reads none any more; there is none
Phase = Literal["searching", "changing", "concluding", "none"]


def phase_of(run: Run) -> Phase:
    """The phase of a run's driver; `run` was read just now."""
    if not run.alive:
        return "none" if holder(run.folder) is None else "changing"
    session = newest_session(run)
    if session and _is_of_an_earlier_driver(session, run):
        return "changing"
    return "concluding" if any(event["event"] in ENDS for event in session) else "searching"


def newest_session(run: Run) -> list[Event]:
    """The events of the newest driver; empty if there are none."""
    begun = [at for at, event in enumerate(run.events) if event["event"] in ("study_started", "study_resumed")]
    return run.events[begun[-1] :] if begun else []


def _is_of_an_earlier_driver(session: list[Event], run: Run) -> bool:
    """Whether the present driver took the run only after these events, so that its own are still to come."""
    now = holder(run.folder)
    return now is not None and float(session[-1]["time"]) < datetime.fromisoformat(now.since).timestamp()
