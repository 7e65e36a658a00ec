"""HTTP to a service, only with the standard library: it works with the base installation."""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from typing import IO, Any, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from tuner.errors import StudyError, one_line, shown
from tuner.machine.web_opener import is_loopback, opener_for
from tuner.text import printable

_log = logging.getLogger(__name__)  # unless set up, it goes to stderr
_T = TypeVar("_T")
API = "/api/v1"
SECONDS = 60.0  # until an answer must begin; a check may take as long
LONGEST_ANSWER = 200_000_000
PATIENCE_SECONDS = 600.0  # that a server which has answered may be away, for instance while it restarts
CHECK_ADDRESS = "; check its address"
AGAIN_SECONDS, LONGEST_PAUSE = 1.0, 15.0  # between two requests to a server that is away; doubled each time


class RequestError(StudyError):
    """A service refused a request, or can't be reached; `status` is the answer's, None if there was none.

    `retry_after` are the seconds after which the service accepts it, if it says so.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        problem: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.problem = dict(problem or {})

    @property
    def away(self) -> bool:
        """Whether no server answered, at most a proxy in front of it."""
        return self.status in (None, 502, 503, 504)

    @property
    def sent(self) -> bool:
        """Whether the server may have got the request."""
        return not isinstance(getattr(self.__cause__, "reason", self.__cause__), ConnectionRefusedError)


def request_for(url: str, method: str, body: Any, token: str | None) -> urllib.request.Request:
    """A request with the body as JSON (None for no body), and the token if there is one."""
    request = urllib.request.Request(url, method=method)
    if token is not None:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    return request


class Connection:
    """Requests to one service with one token.

    A server that is away is asked again: for `patience` seconds, by default for ten minutes once it has answered, so
    that a wrong address fails at once. A request that changes something is only repeated where that is safe.

    Raises StudyError for an invalid address, and for a connection on which others could read a token.
    """

    def __init__(self, url: str, token: str | None = None, patience: float | None = None) -> None:
        self.url = checked_url(url)
        self._token, self._patience = token, patience
        self._opener = opener_for(self.url)
        self._answered = False

    def ask(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """The JSON of `content`; None if it has none. Raises RequestError."""
        found, _ = self.content(method, path, body, **how)
        try:
            return json.loads(found) if found else None
        except ValueError as error:
            raise RequestError(
                f"a service answers with JSON, got something else from {self.url}; check the address"
            ) from error

    def content(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
        seconds: float | None = None,
    ) -> tuple[bytes, Message]:
        """The answer's body and headers. Raises RequestError.

        `repeatable` says that the server takes the request only once however often it comes; a GET always is.
        `seconds` limits how long a server that is away is asked.
        """

        def whole() -> tuple[bytes, Message]:
            with self._opened(method, path, body, query, headers) as found:
                try:
                    return found.read(LONGEST_ANSWER), found.headers
                except (OSError, http.client.HTTPException) as error:
                    raise self.unreachable(error) from error

        return self._patiently(whole, repeatable=repeatable or method == "GET", seconds=seconds)

    def read(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> http.client.HTTPResponse:
        """The answer to a GET, which the caller reads and closes. Raises RequestError."""
        return self._patiently(lambda: self._opened("GET", path, None, query, headers, seconds), repeatable=True)

    def _opened(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        seconds: float = SECONDS,
    ) -> http.client.HTTPResponse:
        request = request_for(self.url + API + path + _query(query), method, body, self._token)
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=seconds)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error.code, error, self.url, error.headers.get("retry-after")) from None
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from error
        return answer

    def _patiently(self, send: Callable[[], _T], *, repeatable: bool, seconds: float | None = None) -> _T:
        patience, pause = self._patience, AGAIN_SECONDS
        if patience is None:
            patience = PATIENCE_SECONDS if self._answered else 0.0
        patience = min(patience, patience if seconds is None else seconds)
        until, waits = time.monotonic() + patience, False
        while True:
            try:
                found = send()
            except RequestError as error:
                if not error.away:
                    self._answered = True
                left = until - time.monotonic()
                if not error.away or left <= 0 or (error.sent and not repeatable):
                    raise
                if not waits:
                    why = printable(one_line(str(error))).removesuffix(CHECK_ADDRESS)
                    _log.warning("%s; asking again for %.3g minutes", why, patience / 60)
                waits = True
                time.sleep(min(left, error.retry_after or pause))
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                self._answered = True
                if waits:
                    _log.warning("%s answers again", self.url)
                return found

    def unreachable(self, error: Exception) -> RequestError:
        """The message about a server that doesn't answer."""
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return RequestError(
                f"a service needs a certificate that this machine trusts, got one of {self.url} that it doesn't "
                f"({reason.verify_message}); name its authority's file in $SSL_CERT_FILE"
            )
        why = one_line(str(getattr(reason, "strerror", None) or reason)) or type(reason).__name__
        return RequestError(f"a service needs to be reached, got no answer from {self.url} ({why}){CHECK_ADDRESS}")


def checked_url(url: str) -> str:
    """The address of a server, without path and query. Raises StudyError."""
    parts = parts_of_url(url if "://" in url else f"http://{url}")
    if parts is None:
        raise StudyError(f"a service has an address, got {shown(url)}; write it as https://tuner.example.org")
    found = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme == "http" and not is_loopback(found):
        raise StudyError(
            f"a service on another machine needs https, as others would read the token, got {shown(url)}; write https://"
        )
    return found


def parts_of_url(url: str) -> SplitResult | None:
    """The parts of a server's address; None for an invalid one."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if sound and parts.username is None else None


def path_of(*parts: object) -> str:
    """A path whose parts are escaped, so that none of them changes the route."""
    return "".join("/" + quote(str(part), safe="") for part in parts)


def _query(query: Mapping[str, Any] | None) -> str:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _refused(status: int, answer: IO[bytes], url: str, again: str | None) -> RequestError:
    """The service's own message if the answer has one; `again` is the header Retry-After."""
    seconds = float(again) if again is not None and again.isdecimal() else None
    try:
        problem = json.loads(answer.read(100_000))
        detail = printable(one_line(str(problem["detail"])))
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return RequestError(
            f"a tuner service says why it refuses, got only status {status} from {url}; check the address",
            status,
            retry_after=seconds,
        )
    return RequestError(detail, status, problem, seconds)
