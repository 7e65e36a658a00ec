"""Feeds: events of one source for many viewers, read once, kept for a while; each viewer takes them at its own pace.

A viewer has no queue, only the number of the next chunk. If it is so slow that this chunk is gone, it is disconnected,
and goes on from the log by its last id. So a slow viewer costs no memory, and doesn't affect others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tuner.errors import describe_error
from tuner.service.web.event_reader import EventReader, Passage, Position
from tuner.storage.folder import Folder

KEPT_BYTES = 1_000_000  # of the newest chunks
POLL_SECONDS = 0.15  # between two reads of a run's log: half of what a viewer may notice
_log = logging.getLogger(__name__)


class Feed:
    """Chunks in the order in which they came; only used in the event loop."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.next = 0  # the number of the chunk that comes next
        self.closed = False
        self.viewers = 0
        self._kept_bytes = kept_bytes
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()

    def push(self, chunk: bytes) -> None:
        """Hand a chunk to all viewers."""
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        self.next += 1
        while self._bytes > self._kept_bytes and len(self._chunks) > 1:
            self._bytes -= len(self._chunks.popleft())
        self.wake()

    def wake(self) -> None:
        """Let all viewers check for something new."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def close(self) -> None:
        """End all viewers' streams properly."""
        self.closed = True
        self.wake()

    def since(self, number: int) -> bytes | None:
        """All chunks from a number on, as one; None if the first of them is gone."""
        behind = self.next - number
        if behind > len(self._chunks):
            return None
        return b"".join(self._chunks[-one] for one in range(behind, 0, -1))

    async def changed(self, seconds: float) -> bool:
        """Wait for a chunk or the end, at most `seconds`; returns whether one came."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


class RunFeed(Feed):
    """The events of one run while it is watched, read every POLL_SECONDS by one reader.

    `find` gives the run's folder, None while the study has no run.
    """

    def __init__(self, find: Callable[[], Folder | None], kept_bytes: int = KEPT_BYTES) -> None:
        super().__init__(kept_bytes)
        self._find = find
        self._reader: EventReader | None = None
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self.end = Position()  # of what was read for all viewers

    async def begin(self) -> None:
        """Read from the end of the log on; each viewer reads earlier events itself.

        If the feed goes on, read what has come until now, so that a viewer's first read isn't behind the log.
        """
        if self._task is not None:
            await self.look()
            return
        self._reader = await asyncio.to_thread(self._found)
        if self._reader is not None:
            self.end = await asyncio.to_thread(self._reader.end)
        self._task = asyncio.create_task(self._follow())

    def stop(self) -> None:
        """Stop: nobody watches any more."""
        if self._task is not None:
            self._task.cancel()

    async def before(self, position: Position) -> Passage | None:
        """The events after a place, up to where the feed began; None if a viewer has caught up."""
        if self._reader is None or position >= self.end:
            return None
        return await asyncio.to_thread(self._reader.after, position, self.end)

    async def _follow(self) -> None:
        problem = ""
        while not self.closed:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.look()
                problem = ""
            except Exception as error:  # without this task all viewers would wait for ever
                known, problem = problem, describe_error(error)
                if problem != known:
                    _log.warning("a run's events can't be read now, which is tried again: %s", problem)

    async def look(self) -> None:
        """Read new events."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        if self._reader is None:
            self._reader = await asyncio.to_thread(self._found)
        while self._reader is not None and not self.closed:
            passage = await asyncio.to_thread(self._reader.after, self.end)
            if passage.end == self.end:
                return
            self.end = passage.end
            if passage.events:
                self.push(passage.written())

    def _found(self) -> EventReader | None:
        folder = self._find()
        return None if folder is None else EventReader(folder)


class Feeds:
    """The feeds of the runs that are watched now, and that of all changes of the queue."""

    def __init__(self, find: Callable[[int], Folder | None], kept_bytes: int = KEPT_BYTES) -> None:
        self.changes = Feed(kept_bytes)
        self.told = 0  # the id of the newest stored change in `changes`
        self.closed = False
        self._find, self._kept_bytes = find, kept_bytes
        self._runs: dict[int, RunFeed] = {}
        self._beginning: dict[int, asyncio.Lock] = {}

    @asynccontextmanager
    async def watched(self, study: int) -> AsyncIterator[RunFeed]:
        """The feed of a study's run, which goes on as long as any viewer is in such a block."""
        feed = self._runs.get(study)
        if feed is None:
            feed = self._runs[study] = RunFeed(lambda: self._find(study), self._kept_bytes)
            self._beginning[study] = asyncio.Lock()
        feed.viewers += 1
        try:
            async with self._beginning[study]:
                await feed.begin()
            yield feed
        finally:
            feed.viewers -= 1
            if not feed.viewers:
                feed.stop()
                del self._runs[study], self._beginning[study]

    def of(self, study: int) -> RunFeed | None:
        """The feed of a study, if anybody watches it."""
        return self._runs.get(study)

    def close(self) -> None:
        """End all streams properly, because the server ends."""
        self.closed = True
        for feed in (self.changes, *self._runs.values()):
            feed.close()
