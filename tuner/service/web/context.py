"""The objects that every route uses: the service, its users, its streams, and the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer

from tuner.service.access import Access, Caller, Guests
from tuner.service.access.access import unauthenticated
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role, User
from tuner.service.rights import require
from tuner.service.service import Service
from tuner.service.web.event_stream import Journal
from tuner.service.web.feeds import Feeds
from tuner.service.web.guards import same_origin
from tuner.service.web.settings import WebSettings
from tuner.service.web.viewed_runs import Runs
from tuner.service.web.workers import Workers
from tuner.service.webhooks import Webhooks

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HEAVY_AT_ONCE = 2  # figures and reports; each may take seconds of a core


# For the description of the API alone: `caller_of` reads both.
_TOKEN = HTTPBearer(scheme_name="token", description="of `tuner token create`", auto_error=False)
_SESSION = APIKeyCookie(name="tuner_session", scheme_name="session", description="of a browser", auto_error=False)
Described = Annotated[object, Depends(_TOKEN)]
DescribedCookie = Annotated[object, Depends(_SESSION)]


@dataclass(frozen=True)
class Web:
    """One service as it is shown to the network."""

    service: Service
    access: Access
    settings: WebSettings
    feeds: Feeds
    runs: Runs
    webhooks: Webhooks
    journal: Journal
    workers: Workers
    guests: Guests | None = None  # if only the page of one run is served
    heavy: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(HEAVY_AT_ONCE))
    checks: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(HEAVY_AT_ONCE))
    uploads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(HEAVY_AT_ONCE))

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; with TLS no other host can set one of this name.

        Browsers send a host's cookies to all its ports: without the port, two servers would end each other's sessions.
        """
        return "__Host-tuner" if self.settings.secure else f"tuner_session_{self.settings.port}"

    async def heavily(self, work: Callable[[], Any]) -> Any:
        """Do long work in a thread, only a few at once."""
        return await anyio.to_thread.run_sync(work, limiter=self.heavy)

    async def checking(self, work: Callable[[], Any]) -> Any:
        """Like `heavily`, for checks, which take up to a minute: they only delay one another, and no figures."""
        return await anyio.to_thread.run_sync(work, limiter=self.checks)


def web_of(request: Request) -> Web:
    """The `Web` with which `application` was made."""
    found: Web = request.app.state.web
    return found


def address_of(request: Request) -> str:
    """The address from which a request comes, as far as it is known."""
    return request.client.host if request.client else "unknown"


def check_origin(request: Request) -> None:
    """Raise ServiceError unless a request comes from a page of this server, or needs no page and comes from none."""
    if not same_origin(request.headers, web_of(request).settings, request.url.scheme):
        raise ServiceError(
            Code.FORBIDDEN,
            "a change by a browser comes from a page of this server",
            f"Origin {request.headers.get('origin', '')[:100]!r}",
            "use the server's own page, or a token",
        )


def caller_of(request: Request, _token: Described = None, _session: DescribedCookie = None) -> Caller:
    """The caller, by a token or a cookie. Raises ServiceError."""
    web = web_of(request)
    try:
        caller = _known(request, web)
    except ServiceError:
        web.access.requests.take(f"address {address_of(request)}")
        raise
    web.access.requests.take(caller.key)
    if web.guests is not None and request.method not in SAFE_METHODS and not request.url.path.endswith("/logout"):
        raise ServiceError(
            Code.FORBIDDEN,
            "a page of one run only shows it",
            f"{request.method} {request.url.path[:100]}",
            "use the command line where the run lies",
        )
    if caller.by_cookie and request.method not in SAFE_METHODS:
        check_origin(request)
    return caller


def _known(request: Request, web: Web) -> Caller:
    header, cookie = request.headers.get("authorization"), request.cookies.get(web.cookie)
    if header is not None:
        scheme, _, secret = header.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthenticated("a token in the header Authorization", "another scheme", "send `Bearer TOKEN`")
        return web.access.by_token(secret.strip())
    if cookie is not None:
        return web.access.by_session(cookie)
    raise unauthenticated("a token, or a browser that has logged in", "neither", "log in: tuner login URL")


def role(least: Role) -> Callable[..., User]:
    """A dependency that gives the caller's user, who must have at least this role."""

    def user(caller: Annotated[Caller, Depends(caller_of)]) -> User:
        require(caller.user, least, "this")
        return caller.user

    return user


Asking = Annotated[Caller, Depends(caller_of)]
Shown = Annotated[Web, Depends(web_of)]
Viewer = Annotated[User, Depends(role(Role.VIEWER))]
Worker = Annotated[User, Depends(role(Role.WORKER))]
Submitter = Annotated[User, Depends(role(Role.SUBMITTER))]
Admin = Annotated[User, Depends(role(Role.ADMIN))]
