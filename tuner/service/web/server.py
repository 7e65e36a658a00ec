"""The server process: listens, serves until it is asked to end, and then ends every stream properly."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import uvicorn
from fastapi import FastAPI

from tuner.errors import StudyError
from tuner.service.access import Access, Guests
from tuner.service.one_run import STUDY, OneRun
from tuner.service.service import Service
from tuner.service.web.application import application
from tuner.service.web.connections import allow_many_files, http_with
from tuner.service.web.settings import WebSettings

END_SECONDS = 5  # for requests to end, once the server is asked to end
STUCK_SECONDS = 30  # that a viewer may leave sent data unread
BACKLOG = 512


class Server(uvicorn.Server):
    """Ends streams when it is asked to end; uvicorn itself would wait for them until its timeout."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on a signal, then return to the caller, who closes the service: uvicorn would raise the signal again."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close streams first, then everything else."""
        app = self.config.app
        if isinstance(app, FastAPI):
            app.state.web.feeds.close()
        await super().shutdown(sockets)


@dataclass(frozen=True)
class Opened:
    """A server that listens: at `url`; and the `link` that creates the first admin if there is none."""

    storage: str
    url: str
    link: str | None

    def __str__(self) -> str:
        told = f"tuner serves {self.storage} at {self.url}"
        return (
            told if self.link is None else f"{told}\nmake the first admin with this link, which works once: {self.link}"
        )


def serve(service: Service, settings: WebSettings, say: Callable[[Opened], None] = print) -> None:
    """Serve until a signal ends it; `service` has been started, and is closed by the caller.

    `say` gets the address when the server listens.

    Raises:
        StudyError: the settings can't work, or the address is taken.
    """
    settings.check()
    allow_many_files()
    with listening(settings) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        access = Access(service.database, service.limits)
        secret = access.first_secret()
        link = None if secret is None else f"{settings.url}/welcome#{secret}"
        say(Opened(str(service.folder.storage), settings.url, link))
        server(service, settings, access).run(sockets=[listener])


def show(service: OneRun, settings: WebSettings, say: Callable[[str], None] = print) -> None:
    """Show one run until a signal ends it; `service` has been started, and is closed by the caller.

    `say` gets a link that works once, and the next one as soon as it was used. Raises StudyError as `serve` does.
    """
    settings.check()
    with listening(settings) as listener:
        settings = replace(settings, port=listener.getsockname()[1])

        def used(secret: str) -> None:
            say(f"opened; a link for another browser: {settings.url}/open#{secret}")

        guests = Guests(service.database, used)
        say(f"{service.study(STUDY).name} at {settings.url}/open#{guests.secret()}")
        say("the link works once; Ctrl-C ends the page, not the search")
        server(service, settings, guests=guests).run(sockets=[listener])


def server(
    service: Service, settings: WebSettings, access: Access | None = None, guests: Guests | None = None
) -> Server:
    """The server, not yet started; a test runs it in a thread."""
    most = service.limits.connections_per_address
    return Server(
        uvicorn.Config(
            application(service, settings, access, guests),
            http=http_with(lambda address: math.inf if settings.is_proxy(address) else most),
            log_level="warning",
            access_log=False,  # users' addresses don't belong in a log
            server_header=False,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips=list(settings.proxies),
            ssl_certfile=settings.tls_cert and str(settings.tls_cert),
            ssl_keyfile=settings.tls_key and str(settings.tls_key),
            timeout_graceful_shutdown=END_SECONDS,
            timeout_keep_alive=20,
            backlog=BACKLOG,
            ws="none",
            lifespan="on",
        )
    )


def listening(settings: WebSettings) -> socket.socket:
    """A socket that listens at the settings' address. Raises StudyError if that is taken or isn't this machine's."""
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        found = socket.create_server((settings.host.strip("[]"), settings.port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        why = str(error) if number is None or number < 0 else os.strerror(number)
        raise StudyError(
            f"tuner serve needs an address that is free, got {settings.host}:{settings.port} ({why}); "
            "end what listens there, or choose another --port"
        ) from error
    # asyncio only sets this if a socket says that it is TCP; without it each answer takes 40 ms longer
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # or the server would wait forever for a viewer that reads nothing
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_SECONDS * 1000)
    return found
