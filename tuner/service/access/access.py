"""For the routes: who sent a request, and is it allowed; changes of users, tokens and sessions, with their author."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.service.access import accounts, invitations, sessions, tokens
from tuner.service.access.accounts import check_password, fits, hashed
from tuner.service.access.credentials import new_secret
from tuner.service.access.request_limits import FailedLogins, RequestLimit, StreamLimit
from tuner.service.access.tokens import DAYS, MOST_DAYS, Token
from tuner.service.database import Database, audit
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Limits, Role, User
from tuner.service.rights import has, require

NOTED_EVERY = 60.0  # seconds between two notes of a token's use
_SECONDS_A_DAY = 86_400.0
GUEST = "viewer"


@dataclass(frozen=True)
class Caller:
    """Who sent a request, and how that is known. The user's role is the token's role if that is lower."""

    user: User
    key: str  # identifies this token or session without its secret, to count requests
    expires: float
    by_cookie: bool = False


class Access:
    """Users, tokens, sessions and limits of one service; may be called from several threads."""

    def __init__(
        self, database: Database, limits: Limits | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        most = limits or Limits()
        self.requests = RequestLimit(most.requests_per_second, most.burst)
        self.logins = FailedLogins(most.failed_logins)
        self.streams = StreamLimit(most.streams, most.streams_per_user)
        self._ended: dict[int, int] = {}  # by user's id: how many changes may have ended the user's rights
        self._database, self._clock = database, clock

    def ended(self, user_id: int) -> int:
        """A number that changes when a user may have lost rights, for requests that are still open."""
        return self._ended.get(user_id, 0)

    def _end(self, user_id: int) -> None:
        self._ended[user_id] = self.ended(user_id) + 1

    # Who sent a request

    def by_token(self, secret: str) -> Caller:
        """The caller with a token. Raises ServiceError if the token isn't valid."""
        now = self._clock()
        with self._database.reading() as connection:
            token = tokens.shown(connection, secret, now)
            user = None if token is None else accounts.by_id(connection, token.user_id)
        if token is None or user is None or user.disabled:
            raise unauthenticated("a token that is valid", "one that has expired, was revoked or never existed")
        if token.used is None or now - token.used > NOTED_EVERY:
            with self._database.changing() as connection:
                tokens.note_use(connection, token.id, now)
        return Caller(_lowered(user, token.role), f"token {token.id}", token.expires)

    def by_session(self, secret: str) -> Caller:
        """The caller with a browser's cookie. Raises ServiceError if the session isn't valid."""
        with self._database.reading() as connection:
            found = sessions.shown(connection, secret, self._clock())
            user = None if found is None else accounts.by_id(connection, found[0])
        if found is None or user is None or user.disabled:
            raise unauthenticated("a session that is open", "one that has ended")
        return Caller(user, f"session {user.id}", found[1], by_cookie=True)

    # Logging in

    def log_in(self, name: str, password: str, address: str) -> tuple[User, str, float]:
        """Begin a session: returns its user, secret and end. Raises the same ServiceError for a wrong name and a wrong
        password.
        """
        self.logins.begin(address, name)
        with self._database.reading() as connection:
            user = accounts.by_name(connection, name)
            stored = accounts.password_of(connection, user.id) if user and not user.disabled else None
        if not fits(stored, password) or user is None:
            raise unauthenticated("a user's name and password", "others", "check both, or ask an admin for a new link")
        self.logins.succeeded(address, name)
        return user, *self._session(user, "log in")

    def log_out(self, secret: str) -> None:
        """End a session."""
        with self._database.changing() as connection:
            found = sessions.shown(connection, secret, self._clock())
            sessions.end(connection, secret)
        if found is not None:
            self._end(found[0])

    def change_password(self, by: User, old: str, new: str, address: str) -> tuple[str, float]:
        """Set your own password; all sessions and tokens end. Returns the secret and the end of a new session."""
        self.logins.begin(address, by.name)
        with self._database.reading() as connection:
            stored = accounts.password_of(connection, by.id)
        if not fits(stored, old):
            raise ServiceError(Code.FORBIDDEN, "a new password needs the current one", "another", "check it")
        self.logins.succeeded(address, by.name)
        self._set_password(by, new, "change the password")
        return self._session(by, "log in")

    def _session(self, user: User, action: str) -> tuple[str, float]:
        secret, now = new_secret(), self._clock()
        with self._database.changing() as connection:
            expires = sessions.add(connection, user.id, secret, now)
            audit.write(connection, now, user, action)
        return secret, expires

    def _set_password(self, user: User, password: str, action: str) -> None:
        stored, now = hashed(check_password(password)), self._clock()
        with self._database.changing() as connection:
            accounts.set_password(connection, user.id, stored, now)
            _forget(connection, user.id)
            audit.write(connection, now, user, action)
        self._end(user.id)

    # Links that work once

    def first_secret(self) -> str | None:
        """A new secret for creating the first admin; None if there is an admin."""
        secret = new_secret()
        with self._database.changing() as connection:
            if accounts.admins(connection):
                return None
            invitations.add(connection, invitations.FIRST_ADMIN, secret, self._clock())
        return secret

    def accept(self, secret: str, password: str, name: str | None, address: str) -> User:
        """Set a user's password by their link; the first link creates the first admin, `name`. Raises ServiceError."""
        self.logins.begin(address)
        stored, now = hashed(check_password(password)), self._clock()
        with self._database.changing() as connection:
            user_id = invitations.used(connection, secret, now)
            user = self._invited(connection, user_id, name)
            accounts.set_password(connection, user.id, stored, now)
            _forget(connection, user.id)
            audit.write(connection, now, user, "accept an invitation")
        self.logins.succeeded(address)
        self._end(user.id)
        return user

    def _invited(self, connection: sqlite3.Connection, user_id: int | None, name: str | None) -> User:
        if user_id == invitations.FIRST_ADMIN:
            if not accounts.admins(connection):
                return accounts.add(connection, name or "", Role.ADMIN, self._clock())
            user_id = None
        user = None if user_id is None else accounts.by_id(connection, user_id)
        if user is None or user.disabled:
            raise unauthenticated(
                "a link that works once", "one that was used or has expired", "ask an admin for a new one"
            )
        return user

    # Users

    def users(self, after: int = 0, limit: int = 200) -> list[User]:
        """Users in the order in which they were added."""
        with self._database.reading() as connection:
            return accounts.all_users(connection, after, limit)

    def user(self, name: str) -> User:
        """The user of a name. Raises ServiceError."""
        with self._database.reading() as connection:
            return accounts.required(connection, name)

    def add_user(self, by: User, name: str, role: Role, weight: float = 1.0) -> tuple[User, str]:
        """Add a user; returns the user, and the secret of the link by which they set their password."""
        require(by, Role.ADMIN, "adding a user")
        now, secret = self._clock(), new_secret()
        with self._database.changing() as connection:
            user = accounts.add(connection, name, role, now, weight)
            invitations.add(connection, user.id, secret, now)
            audit.write(connection, now, by, "add a user", name=user.name, role=role)
        return user, secret

    def invite(self, by: User, name: str) -> tuple[User, str]:
        """A new link for a user who has forgotten the password; the old password works until it is used."""
        require(by, Role.ADMIN, "making a link for a user")
        now, secret = self._clock(), new_secret()
        with self._database.changing() as connection:
            user = accounts.required(connection, name)
            invitations.add(connection, user.id, secret, now)
            audit.write(connection, now, by, "make a link for a user", name=user.name)
        return user, secret

    def change_user(
        self,
        by: User,
        name: str,
        *,
        role: Role | None = None,
        weight: float | None = None,
        disabled: bool | None = None,
        caps: Mapping[str, float | None] | None = None,
    ) -> User:
        """Change the given fields; `caps` by their names, None for no cap any more.

        A user who is disabled loses sessions, tokens and links at once. Raises ServiceError.
        """
        require(by, Role.ADMIN, "changing a user")
        now = self._clock()
        with self._database.changing() as connection:
            before = accounts.required(connection, name)
            given = {"role": role, "weight": weight, "disabled": disabled}
            changed: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
            changed |= caps or {}
            user = replace(before, **changed)
            accounts.change(connection, user)
            if user.disabled:
                _forget(connection, user.id)
            audit.write(connection, now, by, "change a user", name=user.name, **changed)
        self._end(user.id)
        return user

    # Tokens

    def create_token(
        self, by: User, name: str, role: Role | None = None, days: float | None = None
    ) -> tuple[Token, str]:
        """A token of your own, and its secret, which is shown only now. Raises ServiceError."""
        role, days = role or by.role, DAYS if days is None else days
        if not has(by, role):
            raise ServiceError(Code.FORBIDDEN, f"a token's role is at most your own, {by.role}", role, f"use {by.role}")
        if not 0 < days <= MOST_DAYS:
            raise ServiceError(
                Code.REFUSED, f"a token is valid for more than 0 and at most {MOST_DAYS:g} days", f"{days:g}", "use 30"
            )
        now, secret = self._clock(), new_secret()
        with self._database.changing() as connection:
            token_id = tokens.add(connection, by.id, name, role, secret, now, now + days * _SECONDS_A_DAY)
            audit.write(connection, now, by, "create a token", token=token_id, role=role, days=days)
            token = tokens.by_id(connection, token_id)
        if token is None:  # impossible, because it was just added
            raise LookupError(token_id)
        return token, secret

    def tokens(self, by: User, *, everybodys: bool = False, after: int = 0, limit: int = 200) -> list[Token]:
        """Your own tokens; for admins everybody's."""
        if everybodys:
            require(by, Role.ADMIN, "listing everybody's tokens")
        with self._database.reading() as connection:
            return tokens.of_users(connection, None if everybodys else by.id, after, limit)

    def revoke_token(self, by: User, token_id: int) -> None:
        """End a token of your own; admins can end anybody's. Raises ServiceError."""
        now = self._clock()
        with self._database.changing() as connection:
            token = tokens.by_id(connection, token_id)
            if token is None or (token.user_id != by.id and not has(by, Role.ADMIN)):
                raise ServiceError(
                    Code.NOT_FOUND,
                    "a token's number is one that `tuner token list` shows",
                    str(token_id),
                    "check its id",
                )
            tokens.revoke(connection, token_id)
            audit.write(connection, now, by, "revoke a token", token=token_id)
        self._end(token.user_id)


def unauthenticated(rule: str, got: str, fix: str = "log in again: tuner login URL") -> ServiceError:
    """The refusal of an unknown caller."""
    return ServiceError(Code.UNAUTHENTICATED, f"the service needs {rule}", got, fix)


def _lowered(user: User, role: Role) -> User:
    return replace(user, role=role) if has(user, role) else user


def _forget(connection: sqlite3.Connection, user_id: int) -> None:
    sessions.end_all(connection, user_id)
    tokens.revoke_all(connection, user_id)
    invitations.withdraw(connection, user_id)


class Guests:
    """The viewers of one run; `used` is called with the secret of the next link when one was used."""

    def __init__(self, database: Database, used: Callable[[str], None]) -> None:
        self._database, self._used = database, used
        with database.changing() as connection:
            self._user = accounts.add(connection, GUEST, Role.VIEWER, time.time())

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
