"""What users may do with a submitted study, and to which state each verb leads from each state."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.service.database import audit, studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import OVER, State, SubmittedStudy, User


@dataclass(frozen=True)
class Verb:
    """A verb: the next state for each state in which it is allowed, the states in which it is already done, and a
    fix.
    """

    name: str
    leads: Mapping[State, State]
    done: frozenset[State]
    fix: str
    told: str = ""  # name in messages; by default its own name

    def __post_init__(self) -> None:
        object.__setattr__(self, "told", self.told or self.name)


PAUSE = Verb(
    "pause",
    {State.QUEUED: State.PAUSED, State.STARTING: State.PAUSING, State.RUNNING: State.PAUSING},
    frozenset({State.PAUSING, State.PAUSED}),
    "pause one that waits or runs",
)
RESUME = Verb(
    "resume",
    {State.PAUSED: State.QUEUED, State.FAILED: State.QUEUED},
    frozenset({State.QUEUED, State.STARTING, State.RUNNING}),
    "resume one that is paused or failed; `tuner set` extends one that is finished",
)
FINISH = Verb(
    "finish",
    {
        State.STARTING: State.ENDING,
        State.RUNNING: State.ENDING,
        State.PAUSING: State.ENDING,
        State.PAUSED: State.QUEUED,  # its next driver concludes it
        State.QUEUED: State.QUEUED,
    },
    frozenset({State.ENDING, State.FINISHED}),
    "finish one that runs or is paused",
    "finish (`tuner stop`)",
)
CANCEL = Verb(
    "cancel",
    {state: State.CANCELLED for state in State if state not in OVER},
    frozenset({State.CANCELLED}),
    "cancel one that isn't over",
)
WILL_FINISH = "is to finish: its next driver ends the search, scores the winner and writes the report"


def perform(connection: sqlite3.Connection, verb: Verb, study: SubmittedStudy, by: User, now: float) -> bool:
    """Bring the study to the verb's state; returns whether anything changed. Raises ServiceError."""
    if study.state in verb.done:
        return False
    becomes = verb.leads.get(study.state)
    if becomes is None or (verb is FINISH and becomes is State.QUEUED and study.run is None):
        got = f"study {study.id}, which is {study.state}" + ("" if becomes is None else " and has no trial yet")
        fix = verb.fix if becomes is None else "cancel it"
        raise ServiceError(Code.CONFLICT, f"{verb.told} doesn't fit the study's state", got, fix)
    if becomes is study.state:
        studies.update(connection, study.id, **_changes(verb, becomes, study, by, now))
    else:
        studies.change(connection, study.id, study.state, becomes, now, **_changes(verb, becomes, study, by, now))
    audit.write(connection, now, by, verb.name, study.id)
    return True


def _changes(verb: Verb, becomes: State, study: SubmittedStudy, by: User, now: float) -> dict[str, Any]:
    """Columns that change with the state."""
    if becomes in (State.PAUSED, State.PAUSING):
        return {"reason": f"paused by {by.name}"}
    if becomes is State.CANCELLED:
        return {"reason": f"cancelled by {by.name}", "ended": now}
    if becomes is State.QUEUED:
        return {"reason": WILL_FINISH if verb is FINISH else None, "deaths": 0, "not_before": 0.0, "ended": None}
    return {"reason": f"finished by {by.name}"}
