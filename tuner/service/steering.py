"""What users may do with a submitted study: to which state each verb leads, orders to its search, and its limits."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import RunFolderError, StudyError
from tuner.orders.sending import Answer, send
from tuner.results.run import RecordedRun
from tuner.service.checking.study_facts import Facts, demand_of
from tuner.service.database import audit, studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import OVER, Device, State, SubmittedStudy, User
from tuner.study.budget import check_names

_NO_MORE = (State.CANCELLED, State.REFUSED)
_ENDED_TRIALS = ("stop",)  # orders about trials that have no meaning for a search that starts again
GOING_ON = ("running", "paused", "interrupted")  # trials that can


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


def ordered(
    study: SubmittedStudy, run: RecordedRun | None, verb: str, arguments: Mapping[str, Any], by: User
) -> Answer:
    """The immediate answer to an order: "sent", or "waiting" if no search runs. Raises ServiceError."""
    if run is None:
        raise ServiceError(
            Code.CONFLICT, f"{verb!r} needs a study that has begun", f"one that is {study.state}", "wait for that"
        )
    if not study.devices and (study.state in _NO_MORE or verb in _ENDED_TRIALS):
        got = f"study {study.id}, which is {study.state}"
        raise ServiceError(Code.CONFLICT, f"{verb!r} needs a study that runs", got, _going_on(study))
    try:
        answer = send(run, verb, arguments, by=by.name).answer(wait=False)
    except RunFolderError as error:
        raise ServiceError(Code.CONFLICT, str(error)) from error
    except StudyError as error:
        raise ServiceError(Code.REFUSED, str(error)) from error
    if answer.outcome != "waiting":
        return answer
    if study.devices:  # its driver is starting or ending just now
        return replace(
            answer,
            message=f"study {study.id} is {study.state}: the order waits, and is carried out once its search runs",
        )
    told = f"study {study.id} is {study.state}: the order waits, and is carried out first once its search goes on"
    return replace(answer, message=f"{told}; {_going_on(study)}")


def _going_on(study: SubmittedStudy) -> str:
    if study.state in _NO_MORE:
        return "submit it again"
    if study.state is State.FINISHED:
        return f"`tuner set @{study.id} --trials N` goes on with it"
    return "wait for its devices" if study.state is State.QUEUED else f"`tuner resume @{study.id}` goes on with it"


def set_concurrency(
    connection: sqlite3.Connection, study: SubmittedStudy, concurrency: int, devices: Sequence[Device]
) -> None:
    """Set the number for the study's next driver, with the devices it needs; before the check, the check sets these."""
    columns: dict[str, object] = {"options": {**study.options, "concurrency": concurrency}}
    if study.facts and not study.external:
        wanted = studies.wanted_devices(connection, study.id)
        columns["demand"] = demand_of(Facts.read(study.facts), devices, wanted, concurrency)
    studies.update(connection, study.id, **columns)


def check_above(study: SubmittedStudy, limits: Mapping[str, float]) -> None:
    """Raise ServiceError for a limit that the study's run has reached already: its next driver would refuse it.

    As long as a trial can go on, the limit leaves something to do.
    """
    counts: Mapping[str, int] = study.progress.get("trials") or {}
    if study.run is None or study.devices or any(counts.get(status) for status in GOING_ON):
        return
    reached = {"trials": sum(counts.values()), "total_epochs": int(study.progress.get("epochs") or 0)}
    for name, limit in limits.items():
        if limit <= reached.get(name, -1):
            raise ServiceError(
                Code.REFUSED,
                f"{name} counts the whole run and must be above the {reached[name]} that it has",
                f"{limit:g}",
                f"use {reached[name] + 1} or more",
                field=f"limits.{name}",
            )


def check_limits(limits: Mapping[str, float], concurrency: int | None) -> None:
    """Raise ServiceError for impossible limits of a budget or numbers of trials at once."""
    told = dict(limits) if concurrency is None else {**limits, "concurrency": concurrency}
    try:
        check_names(limits)
        if told:
            from tuner.orders.order import checked

            checked("set", told)
    except StudyError as error:
        raise ServiceError(Code.REFUSED, str(error)) from error
