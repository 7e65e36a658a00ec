"""For the routes: webhooks are added, shown, tried and removed, each change with its author."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tuner.errors import shown
from tuner.service.access.credentials import new_secret
from tuner.service.database import Database, audit, webhooks
from tuner.service.database.webhooks import EVENTS, Delivery, Webhook
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role, User
from tuner.service.rights import has, require
from tuner.service.webhooks.addresses import target_of
from tuner.service.webhooks.sender import Sender

MOST_OF_A_USER = 20
TESTS_AT_ONCE = 4  # that users wait for


class Webhooks:
    """Webhooks of one service; may be called from several threads. Each raises ServiceError, as `Service` does."""

    def __init__(self, database: Database, sender: Sender, *, clock: Callable[[], float] = time.time) -> None:
        self.sender = sender
        self._database, self._clock = database, clock
        self._testing = threading.BoundedSemaphore(TESTS_AT_ONCE)

    def add(
        self, by: User, url: str, events: Sequence[str] = EVENTS, *, everybodys: bool = False
    ) -> tuple[Webhook, str]:
        """A webhook of your own, and the secret that signs its messages, which is shown only now."""
        require(by, Role.SUBMITTER, "adding a webhook")
        if everybodys:
            require(by, Role.ADMIN, "a webhook for everybody's studies")
        unknown = [event for event in events if event not in EVENTS]
        if unknown or not events:
            got = shown(unknown[0]) if unknown else "none"
            raise ServiceError(Code.REFUSED, f"a webhook's events are some of {', '.join(EVENTS)}", got, "name one")
        target = target_of(url, self.sender.reach)
        secret, now = new_secret(), self._clock()
        with self._database.changing() as connection:
            if (count := webhooks.count(connection, by.id)) >= MOST_OF_A_USER:
                raise ServiceError(
                    Code.CONFLICT, f"a user has at most {MOST_OF_A_USER} webhooks", str(count), "remove one"
                )
            hook = webhooks.add(connection, by.id, url, tuple(dict.fromkeys(events)), everybodys, secret, now)
            # only the host: a path may be secret
            audit.write(connection, now, by, "add a webhook", webhook=hook, host=target.host, everybodys=everybodys)
        return self.get(by, hook), secret

    def all(self, by: User, *, everybodys: bool = False, after: int = 0, limit: int = 200) -> list[Webhook]:
        """Your own webhooks; for admins everybody's."""
        require(by, Role.ADMIN if everybodys else Role.SUBMITTER, "listing webhooks")
        with self._database.reading() as connection:
            return webhooks.of_users(connection, None if everybodys else by.id, after, limit)

    def get(self, by: User, hook: int) -> Webhook:
        """A webhook of your own; for admins anybody's."""
        require(by, Role.SUBMITTER, "a webhook")
        with self._database.reading() as connection:
            found = webhooks.by_id(connection, hook)
        if found is None:
            raise ServiceError(
                Code.NOT_FOUND, "a webhook is one of `tuner webhook list`", str(hook), "check its number"
            )
        if found.user_id != by.id and not has(by, Role.ADMIN):
            raise ServiceError(
                Code.FORBIDDEN,
                f"this takes your own webhook, or the role {Role.ADMIN}",
                f"webhook {hook} of {found.user!r}",
                "ask its owner or an admin",
            )
        return found

    def remove(self, by: User, hook: int) -> None:
        """Delete a webhook with its deliveries."""
        found, now = self.get(by, hook), self._clock()
        with self._database.changing() as connection:
            webhooks.remove(connection, found.id)
            audit.write(connection, now, by, "remove a webhook", webhook=found.id)

    def deliveries(self, by: User, hook: int, *, before: int | None = None, limit: int = 100) -> list[Delivery]:
        """What was sent to a webhook and what waits, the newest first."""
        found = self.get(by, hook)
        with self._database.reading() as connection:
            return webhooks.deliveries_of(connection, found.id, before, limit)

    def test(self, by: User, hook: int) -> Delivery:
        """Send a message at once, only once; returns the result."""
        found, now = self.get(by, hook), self._clock()
        if not self._testing.acquire(blocking=False):
            raise ServiceError(
                Code.TOO_MANY,
                f"at most {TESTS_AT_ONCE} webhooks are tested at once",
                "one more",
                "try again",
                retry_after=10,
            )
        try:
            with self._database.changing() as connection:
                body = webhooks.message("test", now, None, None)
                number = webhooks.put(connection, found.id, "test", None, body, now, dead="its test was cut off")
                audit.write(connection, now, by, "test a webhook", webhook=found.id)
                made = webhooks.delivery(connection, number)
            if made is not None:
                self.sender.send(made, once=True)
        finally:
            self._testing.release()
        with self._database.reading() as connection:
            sent = webhooks.delivery(connection, number)
        if sent is None:
            raise ServiceError(Code.NOT_FOUND, "a test needs a webhook that stays", str(hook), "add it again")
        return sent
