"""Sends waiting deliveries, and tries again later if a try fails; waiting ones survive a restart of the server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tuner.service.database import Database, webhooks
from tuner.service.database.webhooks import Delivery
from tuner.service.errors import ServiceError
from tuner.service.thread import ServerThread
from tuner.service.webhooks.addresses import Reach, target_of
from tuner.service.webhooks.posting import Outcome, post, signature

WAITS = (10.0, 60.0, 300.0, 1800.0)  # seconds between two tries; after the last one a delivery is dead
AT_ONCE = 4
LOOK_SECONDS = 0.25  # between two checks for new deliveries
DUE_SECONDS = 1.0  # between two checks for due deliveries
_log = logging.getLogger(__name__)


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
