"""A study's next state after its driver's end, and why; pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuner.service.executors import Look
from tuner.service.model import State, SubmittedStudy
from tuner.service.steering import WILL_FINISH
from tuner.text import printable

WAITS = (10.0, 60.0, 300.0)  # seconds before a driver that died is started again
LONGEST_END = 600  # characters of a driver's log in a reason
_PAUSED = "paused by "  # of run.json's `interrupted_by`, see `tuner.lifecycle.obedience`


@dataclass(frozen=True)
class RunEnd:
    """What run.json says about a search whose driver has ended."""

    status: str
    interrupted_by: str | None = None
    driven: bool = False  # whether another process drives it


@dataclass(frozen=True)
class Next:
    """The study's next state, with the columns that change; None for a cancelled study, which stays cancelled."""

    state: State | None
    action: str
    columns: dict[str, Any] = field(default_factory=dict)


def after(study: SubmittedStudy, look: Look, run: RunEnd | None, log: str, now: float) -> Next:
    """The next state of a study whose driver has ended; `log` is the end of the driver's output."""
    if study.state is State.CANCELLED:
        return Next(None, "ended")
    if run is not None and run.status == "finished":
        return Next(State.FINISHED, "finished", {"reason": None, "ended": now, "deaths": 0})
    if run is not None and run.status == "failed":
        return Next(State.FAILED, "failed", {"reason": "no trial of the search succeeded", "ended": now})
    if look.ended is not None and look.ended.error is not None and not _may_pass(look, run):
        return Next(State.FAILED, "failed", {"reason": printable(look.ended.error[1]), "ended": now})
    if study.state is State.PAUSING:
        return _paused(study)
    stopped_by = run.interrupted_by if run is not None and look.ended is not None else None
    if stopped_by is not None and stopped_by.startswith(_PAUSED):
        if study.state is State.ENDING:
            return _again(study, stopped_by, 0, now)
        return Next(State.PAUSED, "paused", {"reason": stopped_by, "deaths": 0})
    if look.rebooted:
        return _again(study, "the machine was restarted", 0, now)
    return _died(study, stopped_by or _last_words(look, log), now)


def unreadable(study: SubmittedStudy, why: str, now: float) -> Next:
    """The next state of a study whose driver left nothing readable; `resume` tries again."""
    if study.state is State.CANCELLED:
        return Next(None, "ended")
    return Next(State.FAILED, "failed", {"reason": f"what its driver left can't be read: {why}", "ended": now})


def _may_pass(look: Look, run: RunEnd | None) -> bool:
    """Whether an error may not occur again: it is not the study's fault, or another driver still works on the run."""
    kind = look.ended.error[0] if look.ended is not None and look.ended.error is not None else ""
    return kind in ("TunerError", "KeyboardInterrupt") or (run is not None and run.driven)


def _paused(study: SubmittedStudy) -> Next:
    if study.room_for is not None:
        reason = f"was paused for study {study.room_for} of a higher priority"
        return Next(State.QUEUED, "paused", {"reason": reason, "room_for": None, "deaths": 0})
    return Next(State.PAUSED, "paused", {"reason": study.reason, "deaths": 0})


def _died(study: SubmittedStudy, why: str, now: float) -> Next:
    deaths = study.deaths + 1
    if deaths > len(WAITS):
        reason = f"its driver died {deaths} times: {why}"
        return Next(State.FAILED, "failed", {"reason": reason, "deaths": deaths, "ended": now})
    return _again(study, why, deaths, now)


def _again(study: SubmittedStudy, why: str, deaths: int, now: float) -> Next:
    wait = WAITS[deaths - 1] if deaths else 0.0
    reason = WILL_FINISH if study.state is State.ENDING else f"its driver died: {why}"
    return Next(State.QUEUED, "died", {"reason": reason, "deaths": deaths, "not_before": now + wait})


def _last_words(look: Look, log: str) -> str:
    if look.ended is not None and look.ended.error is not None:
        return printable(look.ended.error[1])
    words = printable(log).strip()[-LONGEST_END:]
    return f"its log ends with: {words}" if words else "it said nothing"
