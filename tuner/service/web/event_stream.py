"""A response of server-sent events: caught up from the log, then live, until the viewer or the server goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tuner.service.database import Database, audit
from tuner.service.model import Change, State
from tuner.service.web.event_reader import Position, sent
from tuner.service.web.feeds import Feed, Feeds

PING_SECONDS = 15.0  # before proxies and clients would take a silent stream for a dead one
MOST_MISSED = 1000  # changes that are sent to a viewer; if there are more, reading the lists again is faster
_KINDS = {"priority": "priority", "delete": "deleted"}  # by the audit's action; all others are states
_AGAIN = b"retry: 1000\n\n"  # milliseconds until a browser connects again
_PING = b": still here\n\n"
_BEHIND = b": you are behind, connect again\n\n"

Allowed = Callable[[], bool]


class EventStream(StreamingResponse):
    """Sends chunks as they come; `place` is held meanwhile, and raises if there are too many streams."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes], place: AbstractContextManager[None]) -> None:
        super().__init__(chunks, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        self._chunks, self._place = chunks, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the chunks end or the viewer is gone."""
        with self._place:
            async with aclosing(self._chunks):
                await super().__call__(scope, receive, send)


async def of_run(
    feeds: Feeds, study: int, position: Position, allowed: Allowed, state: Callable[[], State]
) -> AsyncGenerator[bytes]:
    """The events of a study's run from a place on, then its state, then events and changes of state as they come."""
    async with feeds.watched(study) as feed:
        yield _AGAIN
        while (passage := await feed.before(position)) is not None and passage.end != position:
            position = passage.end
            yield passage.written()
        number = feed.next
        yield _told(Change(study, "state", state()))
        async for chunk in _live(feed, number, allowed):
            yield chunk


async def of_changes(feeds: Feeds, journal: Journal, last: str | None, allowed: Allowed) -> AsyncGenerator[bytes]:
    """Changes of all studies: those since the id that a viewer saw last, whichever server sent it, then as they come.

    `reset` asks the viewer to read the lists again: if it has no id, or one that is too old or unknown here.
    """
    number, told = feeds.changes.next, feeds.told  # no change can come in between
    yield _AGAIN
    missed = None if last is None else await asyncio.to_thread(journal.missed, last, told)
    if missed is None:
        yield sent(str(told), {"event": "reset"})
    else:
        yield b"".join(_stored(change) for change in missed)
    async for chunk in _live(feeds.changes, number, allowed):
        yield chunk


class Journal:
    """The stored changes of studies; their ids are those of the audit, so that they outlast the server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def newest(self) -> int:
        """The id of the newest change."""
        with self._database.reading() as connection:
            return audit.newest(connection)

    def since(self, after: int) -> list[audit.StudyChange]:
        """The changes stored after an id."""
        with self._database.reading() as connection:
            return audit.changes(connection, after, None, MOST_MISSED)

    def missed(self, last: str, until: int) -> list[audit.StudyChange] | None:
        """The changes after the last id that a viewer saw; None if that isn't an id, or there are too many."""
        if not (last.isascii() and last.isdecimal() and len(last) < 16) or int(last) > until:
            return None
        with self._database.reading() as connection:
            found = audit.changes(connection, int(last), until, MOST_MISSED + 1)
        return None if len(found) > MOST_MISSED else found


def tell(feeds: Feeds, journal: Journal, change: Change) -> None:
    """Send a change to all viewers; called in the event loop.

    Stored changes have an id. Progress of a search, and the reason for waiting, don't: they are read again each time.
    """
    stored = [] if change.kind == "progress" else journal.since(feeds.told)
    for each in stored:
        feeds.changes.push(_stored(each))
        feeds.told = each.id
    if not any(each.study == change.study for each in stored):
        feeds.changes.push(_told(change))
    feed = feeds.of(change.study)
    if feed is not None and change.kind != "progress":  # the run's own events show that
        feed.push(_told(change))


def _told(change: Change) -> bytes:
    return sent(None, {"event": change.kind, "study": change.study, "state": change.state})


def _stored(change: audit.StudyChange) -> bytes:
    kind = _KINDS.get(change.action, "state")
    return sent(str(change.id), {"event": kind, "study": change.study, "state": change.state})


async def _live(feed: Feed, number: int, allowed: Allowed) -> AsyncGenerator[bytes]:
    while not feed.closed and allowed():
        chunk = feed.since(number)
        if chunk is None:
            yield _BEHIND
            return
        if chunk:
            number = feed.next
            yield chunk
        elif not await feed.changed(PING_SECONDS):
            yield _PING
