"""Links that log a browser in once, as a viewer without a password: for the page of one run, which has no accounts."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.service.access import accounts, invitations, sessions
from tuner.service.access.credentials import new_secret
from tuner.service.database import Database, audit
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role, User

NAME = "viewer"


class Guests:
    """The viewers of one run; `used` is called with the secret of the next link when one was used."""

    def __init__(self, database: Database, used: Callable[[str], None]) -> None:
        self._database, self._used = database, used
        with database.changing() as connection:
            self._user = accounts.add(connection, NAME, Role.VIEWER, time.time())

    def secret(self) -> str:
        """The secret of a link, which replaces that of the previous link."""
        secret = new_secret()
        with self._database.changing() as connection:
            invitations.add(connection, self._user.id, secret, time.time())
        return secret

    def enter(self, secret: str) -> tuple[User, str, float]:
        """Use a link, which works once; returns the viewer, and a new session's secret and end. Raises ServiceError."""
        session, now = new_secret(), time.time()
        with self._database.changing() as connection:
            if invitations.used(connection, secret, now) != self._user.id:
                raise ServiceError(
                    Code.UNAUTHENTICATED,
                    "this page needs a link that works once",
                    "one that was used",
                    "open the newest link that `tuner show --web` has printed",
                )
            expires = sessions.add(connection, self._user.id, session, now)
            audit.write(connection, now, self._user, "open a link")
        self._used(self.secret())
        return self._user, session, expires
