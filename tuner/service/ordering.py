"""Orders to the search of a study: puts them into its run's inbox, and phrases the answers for the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import RunFolderError, StudyError
from tuner.orders.sending import Answer, send
from tuner.results import Run
from tuner.service.errors import Code, ServiceError
from tuner.service.model import State, SubmittedStudy, User

_NO_MORE = (State.CANCELLED, State.REFUSED)
_ENDED_TRIALS = ("stop",)  # orders about trials that have no meaning for a search that starts again


def ordered(study: SubmittedStudy, run: Run | None, verb: str, arguments: Mapping[str, Any], by: User) -> Answer:
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
