"""Lines to the processes of external studies: one connection each, for requests and their answers in the same order."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.service.database import studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import State, SubmittedStudy
from tuner.service.service import Service

SOCKET = "socket"  # in the folder of a study's driver, see `tuner.ask_tell.detached`
SECONDS = 20.0  # for an answer: a suggestion after many trials takes a fraction of a second
CONNECT_SECONDS = 5.0
MOST_WAITING = 1000  # waiting requests of one study
LONGEST_ANSWER = 4_000_000  # bytes
_AWAY = "the search of a study answers within a moment"
Key = tuple[int, int]  # a study, and the number of its driver


class Lines:
    """The lines of one server, only used in its event loop; `running` may be called from any thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lines: dict[Key, asyncio.Task[_Line]] = {}
        self._watching: set[asyncio.Task[None]] = set()

    def running(self) -> list[int]:
        """The external studies that run now."""
        with self._service.database.reading() as connection:
            return [study.id for study in studies.in_states(connection, [State.RUNNING]) if study.external]

    async def ask(self, study: SubmittedStudy, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request. Raises ServiceError if the study's process doesn't answer."""
        try:
            async with asyncio.timeout(SECONDS):
                line = await self._line(study)
                return await line.ask(request)
        except TimeoutError as error:
            raise _away("nothing", 5.0) from error
        except OSError as error:  # it is ending, or was killed: the supervisor notices that soon
            raise _away(error.strerror or "a line that was cut", 1.0) from error

    def watch(self, study: int) -> None:
        """Connect to an external study that runs now, so that it knows whether workers can reach it."""
        task = asyncio.get_running_loop().create_task(self._watch(study))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def close(self) -> None:
        """Close all lines; the processes go on, and wait for the next server."""
        for task in (*self._watching, *self._lines.values()):
            task.cancel()
            with suppress(asyncio.CancelledError, OSError):
                line = await task
                if line is not None:
                    line.close()
        self._lines.clear()

    async def _watch(self, study: int) -> None:
        with suppress(ServiceError, OSError):  # it has ended meanwhile; the next request tries again
            found = await asyncio.to_thread(self._service.study, study)
            if found.external and found.state is State.RUNNING:
                await self._line(found)

    async def _line(self, study: SubmittedStudy) -> _Line:
        key = (study.id, study.attempt)
        task = self._lines.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().closed)):
            for old in [each for each in self._lines if each[0] == study.id]:
                self._forget(old)
            path = self._service.folder.attempt(*key) / SOCKET
            task = self._lines[key] = asyncio.create_task(_connected(path))
        return await asyncio.shield(task)

    def _forget(self, key: Key) -> None:
        task = self._lines.pop(key)
        if task.done() and not task.cancelled() and task.exception() is None:
            task.result().close()


class _Line:
    """One connection; answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: deque[asyncio.Future[dict[str, Any]]] = deque()
        self.closed = False
        self._reading = asyncio.create_task(self._read(reader))

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.closed:
            raise ConnectionResetError
        if len(self._waiting) >= MOST_WAITING:
            raise _away(f"{MOST_WAITING} requests that wait", 2.0)
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)  # at the same moment as sending
        self._writer.write(json.dumps(request).encode() + b"\n")
        found: dict[str, Any] = await answer
        return found

    def close(self) -> None:
        self.closed = True
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, ValueError):
            while line := await reader.readline():
                answer = self._waiting.popleft()
                if not answer.done():  # the request wasn't given up
                    answer.set_result(json.loads(line))
        self.close()
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(ConnectionResetError())


async def _connected(path: Path) -> _Line:
    """A connection to a socket at a path of any length; raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            name = f"/proc/self/fd/{folder}/{path.name}"  # addresses of sockets are short
            return _Line(*await asyncio.open_unix_connection(name, limit=LONGEST_ANSWER))
    finally:
        os.close(folder)


def _away(got: str, seconds: float) -> ServiceError:
    return ServiceError(Code.UNAVAILABLE, _AWAY, got, "send the request again", retry_after=seconds)
