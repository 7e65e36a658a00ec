"""Connections of clients: how many an address may have, and how long it may take to send a request."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEADER_SECONDS = 20.0  # from the first byte of a request, or from the connection, to the end of its headers
MOST_FILES = 65_536
Limit = Callable[[str], float]  # from an address to how many connections it may have


class Http(H11Protocol):
    """HTTP/1.1 on one connection, which is closed if a request's headers don't arrive in time.

    An address that has too many connections loses the oldest one on which it asks for nothing; if it asks for something
    on all of them, it doesn't get another.
    """

    def __init__(
        self, limit: Limit, config: Config, server_state: ServerState, app_state: dict[str, Any], **how: Any
    ) -> None:
        super().__init__(config, server_state, app_state, **how)
        self._limit = limit
        self._deadline: asyncio.TimerHandle | None = None
        self._at = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called once it is open."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        same = [one for one in self.connections if isinstance(one, Http) and one.client and one.client[0] == address]
        if len(same) > self._limit(address):
            waiting = [one for one in same if one is not self and not one.asked]
            min(waiting, key=lambda one: one._at, default=self).transport.abort()
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Called with each part of a request."""
        super().data_received(data)
        if self.asked:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called once it is closed."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def asked(self) -> bool:
        """Whether a request has come whose answer isn't complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def http_with(limit: Limit) -> Any:
    """What uvicorn makes a connection with."""
    return partial(Http, limit)


def allow_many_files() -> None:
    """Raise this process's limit of open files, each connection being one; as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
