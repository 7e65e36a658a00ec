"""Checks that every request has to pass before it reaches a route, and headers of every answer."""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.errors import shown
from tuner.service.access.credentials import holds_secret
from tuner.service.model import Limits
from tuner.service.web.problems import problem
from tuner.service.web.settings import WebSettings

BODY_SECONDS = 30.0  # that a client may take for a body,
SLOWEST = 10_000  # and a second more for so many bytes of it
PROBES = ("/healthz", "/readyz")
_AGAIN = ":again"
_BUNDLES = ("/api/v1/studies", "/api/v1/studies:check")
_HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cache-control": "no-store",
}  # unless a route says something else


class Methods:
    """Which methods each address takes.

    Of several paths that fit, the one with most fixed text counts: `/studies/{study}` fits `/studies/1:pause`, too.
    """

    def __init__(self, routes: Iterable[tuple[str, Collection[str]]]) -> None:
        found = defaultdict[str, set[str]](set)
        for path, methods in routes:
            found[path] |= set(methods)
        fixed = sorted(found, key=lambda path: -len(re.sub(r"\{.*?\}", "", path)))
        self._known = [(compile_path(path)[0], ", ".join(sorted(found[path]))) for path in fixed]

    def refusal(self, method: str, path: str) -> Response | None:
        """The answer to a method that the address doesn't take; None for others, and for unknown addresses."""
        allowed = next((methods for pattern, methods in self._known if pattern.match(path)), None)
        if allowed is None or method in allowed.split(", "):
            return None
        rule, fix = "an address takes only its own methods", f"use {allowed.replace(', ', ' or ')}"
        return problem(405, rule, f"{method} of {shown(path)}", fix, headers={"allow": allowed})


class Guards:
    """The Host header, methods, secrets in addresses, the length of bodies, and headers of all answers."""

    def __init__(self, app: ASGIApp, settings: WebSettings, limits: Limits, methods: Methods) -> None:
        self._app, self._settings, self._limits, self._methods = app, settings, limits, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with_headers = _sending(send, secure=self._settings.secure)
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, with_headers)
        else:
            await self._app(scope, _Body(receive, limit_of(scope["path"], self._limits)).receive, with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        probe = scope["path"] in PROBES  # may use any address: they reveal nothing
        if headers.getlist("host") != [host] or not (probe or self._settings.serves(host)):
            fix = "use one of them; `tuner serve --name NAME` adds another"
            return problem(421, f"this server answers for {self._settings.shown_names}", f"Host {host[:100]!r}", fix)
        if holds_secret(unquote(scope["query_string"].decode("latin-1"))) or holds_secret(scope["path"]):
            rule = "a token stands in the header Authorization, as addresses come into logs"
            return problem(400, rule, "one in the address", "revoke it, and send `Authorization: Bearer TOKEN`")
        if "\0" in scope["path"]:
            return problem(404, "an address has no NUL character", "one that has", "leave it out")
        length, most = headers.get("content-length", "0"), limit_of(scope["path"], self._limits)
        if length.isdecimal() and int(length[:20]) > most:
            fix = "leave out what the study doesn't import"
            return problem(413, f"a request's body has at most {most:,} bytes here", "a longer one", fix)
        return self._methods.refusal(scope["method"], scope["path"])


def limit_of(path: str, limits: Limits) -> int:
    """Bytes that the body of a request to this address may have; a submission has its files in base64."""
    if path.endswith(_AGAIN):
        return 2 * limits.study_file_bytes + limits.body_bytes  # in JSON, with escapes
    in_base64 = 4 * math.ceil(limits.bundle_bytes / 3) if path in _BUNDLES else 0
    return in_base64 + limits.body_bytes


def same_origin(headers: Headers, settings: WebSettings, scheme: str) -> bool:
    """Whether a request comes from a page of this server, as the header Origin says."""
    origin = headers.get("origin")
    if origin is None:
        return False
    parts = urlsplit(origin)
    schemes = ("http", "https") if settings.behind_proxy else (scheme,)
    return parts.scheme in schemes and parts.netloc.lower() == headers.get("host", "").lower()


class _Body:
    """A body as it arrives, which ends with an error if it is too long or too slow."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._left = receive, most, most
        self._ended, self._deadline = False, asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive(self) -> Message:
        if self._ended:  # now it can only be that the client leaves
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline + (self._most - self._left) / SLOWEST):
                message = await self._receive()
        except TimeoutError as error:
            rule = f"a request's body has to arrive within {BODY_SECONDS:g} s and {SLOWEST // 1000} KB a second"
            raise HTTPException(408, rule) from error
        self._ended = not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, f"a request's body has at most {self._most:,} bytes here")
        return message


def _sending(send: Send, *, secure: bool) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if secure:
                headers.setdefault("strict-transport-security", "max-age=31536000")
        await send(message)

    return with_headers
