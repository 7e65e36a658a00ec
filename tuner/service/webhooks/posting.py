"""One signed message to one address; of the answer only the status is read."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tuner import __version__
from tuner.service.webhooks.addresses import Reach, RefusedAddressError, Target

SECONDS = 10.0  # the longest that a try takes, from the connection on


@dataclass(frozen=True)
class Outcome:
    """The result of a try: the status of an answer, or the problem; `final` if another try would not help."""

    status: int | None = None
    problem: str | None = None
    final: bool = False

    @property
    def delivered(self) -> bool:
        """Whether the other side accepted it."""
        return self.problem is None


def signature(secret: str, body: bytes, now: float) -> str:
    """The header that proves who sent a body, and when: HMAC-SHA256 of "time.body" with the webhook's secret."""
    time = int(now)
    made = hmac.new(secret.encode(), f"{time}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={time},v1={made}"


def post(target: Target, reach: Reach, headers: dict[str, str], body: bytes, seconds: float = SECONDS) -> Outcome:
    """Send a body by HTTPS to an address that may be reached; follows no redirect, uses no proxy, reads no answer."""
    try:
        addresses = reach.addresses(target.host, target.port)
    except RefusedAddressError as error:
        return Outcome(problem=str(error), final=True)
    except (OSError, UnicodeError):
        return Outcome(problem="its host has no address")
    try:
        with _connected(addresses, target, reach, seconds) as connection:
            sent = {"Content-Type": "application/json", "User-Agent": f"tuner/{__version__}", "Connection": "close"}
            connection.request("POST", target.path, body, sent | headers)
            status = connection.getresponse().status
    except ssl.SSLCertVerificationError as error:
        return Outcome(problem=f"its certificate is not trusted: {error.verify_message}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Outcome(problem=f"no answer ({type(error).__name__})")
    if 200 <= status < 300:
        return Outcome(status)
    if 300 <= status < 400:
        return Outcome(status, "it answered with a redirect, which is not followed; give the address itself", True)
    return Outcome(status, f"it answered with {status}", status == 410)


@contextmanager
def _connected(
    addresses: list[str], target: Target, reach: Reach, seconds: float
) -> Iterator[http.client.HTTPSConnection]:
    """A connection to one of these addresses, which gets the host's name and needs a certificate for it.

    Without a second look-up, it connects to the checked address. Ends after `seconds`, however slow the other side is.
    """
    context = ssl.create_default_context()
    if reach.ca is not None:
        context.load_verify_locations(reach.ca)
    plain = _first(addresses, target.port, seconds)
    handle = socket.socket(fileno=os.dup(plain.fileno()))
    clock = threading.Timer(seconds, _shut, [handle])
    clock.daemon = True
    clock.start()
    try:
        connection = http.client.HTTPSConnection(target.host, target.port, timeout=seconds, context=context)
        with plain, context.wrap_socket(plain, server_hostname=target.host) as connection.sock:
            yield connection
    finally:
        clock.cancel()
        clock.join()
        handle.close()
        plain.close()


def _first(addresses: list[str], port: int, seconds: float) -> socket.socket:
    """A connection to the first address that answers. Raises OSError if none does."""
    problem: OSError = OSError("no address")
    for address in addresses[:4]:
        try:
            return socket.create_connection((address, port), timeout=seconds / 2)
        except OSError as error:
            problem = error
    raise problem


def _shut(handle: socket.socket) -> None:
    with suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)
