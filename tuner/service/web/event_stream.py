"""A response of server-sent events: caught up from the log, then live, until the viewer or the server goes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tuner.service.model import Change, State
from tuner.service.web.event_reader import Position, sent
from tuner.service.web.feeds import Feed, Feeds

PING_SECONDS = 15.0  # after which proxies and clients would take a silent stream for a dead one
_AGAIN = b"retry: 1000\n\n"  # milliseconds until a browser connects again
_PING = b": still here\n\n"
_BEHIND = b": you are behind, connect again\n\n"

Allowed = Callable[[], bool]


class EventStream(Response):
    """Sends chunks as they come; `place` is held meanwhile, and refuses where there are too many streams."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[bytes], place: AbstractContextManager[None]) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._chunks, self._place = chunks, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the chunks end or the viewer is gone, which only `receive` tells."""
        with self._place:
            sending = asyncio.create_task(self._send(send))
            gone = asyncio.create_task(_gone(receive))
            try:
                await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                sending.cancel()
                await asyncio.gather(sending, gone, return_exceptions=True)
            if not sending.cancelled() and (error := sending.exception()) is not None:
                raise error

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def of_run(
    feeds: Feeds, study: int, position: Position, allowed: Allowed, state: Callable[[], State]
) -> AsyncIterator[bytes]:
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


async def of_changes(feeds: Feeds, last: str | None, allowed: Allowed) -> AsyncIterator[bytes]:
    """Changes of all studies; `reset` where the viewer should read the lists anew, as what happened since is gone."""
    feed = feeds.changes
    number = _number(last)
    yield _AGAIN
    if number is None or number > feed.next or feed.since(number) is None:
        number = feed.next
        yield sent(_place(number), {"event": "reset"})
    async for chunk in _live(feed, number, allowed):
        yield chunk


def tell(feeds: Feeds, change: Change) -> None:
    """Hand a change to all who watch; called in the event loop."""
    feeds.changes.push(_told(change, _place(feeds.changes.next + 1)))
    feed = feeds.of(change.study)
    if feed is not None and change.kind != "progress":  # of which the run's own events tell
        feed.push(_told(change))


def _told(change: Change, place: str | None = None) -> bytes:
    return sent(place, {"event": change.kind, "study": change.study, "state": change.state})


async def _live(feed: Feed, number: int, allowed: Allowed) -> AsyncIterator[bytes]:
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


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_EPOCH = secrets.token_hex(4)  # of this process: its numbers mean nothing to the next one


def _place(number: int) -> str:
    return f"{_EPOCH}-{number}"


def _number(place: str | None) -> int | None:
    epoch, _, number = (place or "").partition("-")
    return int(number) if epoch == _EPOCH and number.isdecimal() and number.isascii() and len(number) < 16 else None
