"""Streams of events."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response

from tuner.errors import shown
from tuner.service.access import Caller
from tuner.service.errors import Code, ServiceError
from tuner.service.model import State
from tuner.service.web import event_stream
from tuner.service.web.context import Asking, Shown, Web
from tuner.service.web.event_reader import Position
from tuner.service.web.event_stream import EventStream
from tuner.service.web.routes.bodies import Id

router = APIRouter(tags=["events"])
LastSeen = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="of the last event that was seen")
]
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


@router.get("/events", response_class=Response, responses=STREAM)
async def changes(caller: Asking, web: Shown, last: LastSeen = None) -> Response:
    """Changes of all studies since the last one seen, then each as it happens; `reset`: read the lists again."""
    chunks = event_stream.of_changes(web.feeds, web.journal, last, _allowed(caller, web))
    return EventStream(chunks, web.access.streams.one(caller.user.id))


@router.get("/studies/{study}/events", response_class=Response, responses=STREAM)
async def events(study: Id, caller: Asking, web: Shown, last: LastSeen = None) -> Response:
    """The events of its run from the beginning, or from the last that was seen; then each as it happens."""
    web.service.study(study)
    state = partial(_state, web, study)
    chunks = event_stream.of_run(web.feeds, study, _place(last), _allowed(caller, web), state)
    return EventStream(chunks, web.access.streams.one(caller.user.id))


def _state(web: Web, study: int) -> State:
    try:
        return web.service.study(study).state
    except ServiceError:  # deleted meanwhile
        return State.CANCELLED


def _place(last: str | None) -> Position:
    try:
        return Position.parse(last) if last else Position()
    except ValueError as error:
        raise ServiceError(
            Code.REFUSED, "Last-Event-ID is the id of an event, SEGMENT:BYTES", shown(last), "leave it out"
        ) from error


def _allowed(caller: Caller, web: Web) -> Callable[[], bool]:
    """Whether the caller may still watch: not once the token has expired.

    After a change of the user's rights their streams end, too; who still has the right connects again and goes on.
    """
    user = caller.user.id
    before = web.access.ended(user)
    return lambda: web.access.ended(user) == before and time.time() < caller.expires
