"""Sends waiting deliveries, signed; tries again later if a try fails; waiting ones survive a restart of the server."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tuner.machine.version import __version__
from tuner.service.database import Database, webhooks
from tuner.service.database.webhooks import Delivery
from tuner.service.errors import ServiceError
from tuner.service.thread import ServerThread
from tuner.service.webhooks.addresses import Reach, RefusedAddressError, Target, target_of

WAITS = (10.0, 60.0, 300.0, 1800.0)  # seconds between two tries; after the last one a delivery is dead
AT_ONCE = 4
LOOK_SECONDS = 0.25  # between two checks for new deliveries
DUE_SECONDS = 1.0  # between two checks for due deliveries
_log = logging.getLogger(__name__)
SECONDS = 10.0  # the longest that a try takes, from the connection on


class Sender:
    """Sends from its own threads, one delivery of a webhook at a time: a slow webhook only delays itself.

    A delivery is sent at least once: if its answer was lost with the server, it is sent again, with the same id.
    """

    def __init__(
        self,
        database: Database,
        reach: Reach,
        *,
        waits: tuple[float, ...] = WAITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.reach = reach
        self._database, self._waits, self._clock = database, waits, clock
        self._busy: set[int] = set()  # webhooks
        self._thread = ServerThread(self._work, "tuner-webhooks")
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tuner-webhook")

    def start(self) -> None:
        """Start, with the deliveries of an earlier server."""
        self._thread.start()

    def close(self) -> None:
        """End after the present tries; the rest waits for the next server."""
        self._thread.end()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def send(self, delivery: Delivery, *, once: bool = False) -> None:
        """Try one delivery now, and record the result; `once`: without another try."""
        with self._database.reading() as connection:
            hook = webhooks.by_id(connection, delivery.webhook)
            secret = webhooks.secret_of(connection, delivery.webhook)
        if hook is None or secret is None:
            return
        now, body = self._clock(), delivery.body.encode()
        headers = {
            "Tuner-Event": delivery.event,
            "Tuner-Delivery": str(delivery.id),
            "Tuner-Signature": signature(secret, body, now),
        }
        try:
            outcome = post(target_of(hook.url, self.reach), self.reach, headers, body)
        except ServiceError as error:  # the address was allowed when it was added, but no longer is
            outcome = Outcome(problem=error.rule, final=True)
        dead = once or outcome.final or delivery.tries >= len(self._waits)
        state = "delivered" if outcome.delivered else "dead" if dead else "waiting"
        wait = self._waits[delivery.tries] if state == "waiting" else 0.0
        with self._database.changing() as connection:
            after = self._clock()
            webhooks.tried(connection, delivery.id, state, after, after + wait, outcome.status, outcome.problem)

    def _work(self) -> None:
        seen, looked = -1, 0.0
        while not self._thread.rest(LOOK_SECONDS):
            if self._database.commits == seen and time.monotonic() < looked + DUE_SECONDS:
                continue
            seen, looked = self._database.commits, time.monotonic()
            try:
                with self._database.reading() as connection:
                    found = webhooks.due(connection, self._clock())
            except Exception:  # the disk is temporarily gone
                _log.exception("webhooks could not be looked at")
                continue
            for delivery in found:
                if delivery.webhook not in self._busy:
                    self._busy.add(delivery.webhook)
                    self._pool.submit(self._try, delivery)

    def _try(self, delivery: Delivery) -> None:
        try:
            with self._database.reading() as connection:  # another try may have ended since this delivery was found
                now = webhooks.delivery(connection, delivery.id)
            if now is not None and now.state == "waiting" and now.next_try <= self._clock():
                self.send(now)
        except Exception:
            _log.exception("delivery %d to webhook %d failed", delivery.id, delivery.webhook)
            self._thread.rest(DUE_SECONDS)  # most likely a full disk
        finally:
            self._busy.discard(delivery.webhook)


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
