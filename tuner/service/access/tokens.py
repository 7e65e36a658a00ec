"""Tokens: how programs identify themselves, in place of a password."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from tuner.service.access.credentials import digest
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role

DAYS, MOST_DAYS = 30.0, 366.0
MOST_OF_A_USER = 200
_COLUMNS = "tokens.id, tokens.user_id, users.name AS user, tokens.name, tokens.role, tokens.created, expires, used"
_FROM = f"SELECT {_COLUMNS} FROM tokens JOIN users ON users.id = tokens.user_id"


@dataclass(frozen=True)
class Token:
    """A token without its secret. It may do what its role may, and never more than its user; times as `User`'s."""

    id: int
    user_id: int
    user: str
    name: str  # what it is for
    role: Role
    created: float
    expires: float
    used: float | None  # when it was shown last, to a minute


def add(
    connection: sqlite3.Connection, user_id: int, name: str, role: Role, secret: str, now: float, ends: float
) -> int:
    """Store a token's hash; returns its id. Raises ServiceError if the user has too many."""
    connection.execute("DELETE FROM tokens WHERE expires < ?", (now,))
    count = connection.execute("SELECT COUNT(*) FROM tokens WHERE user_id = ?", (user_id,)).fetchone()[0]
    if count >= MOST_OF_A_USER:
        raise ServiceError(
            Code.CONFLICT,
            f"a user has at most {MOST_OF_A_USER} tokens",
            str(count),
            "revoke one with `tuner token revoke`",
        )
    query = "INSERT INTO tokens (user_id, name, role, hash, created, expires) VALUES (?, ?, ?, ?, ?, ?)"
    return int(connection.execute(query, (user_id, name, role, digest(secret), now, ends)).lastrowid or 0)


def shown(connection: sqlite3.Connection, secret: str, now: float) -> Token | None:
    """The token of a secret that is still valid."""
    row = connection.execute(f"{_FROM} WHERE hash = ? AND expires > ?", (digest(secret), now)).fetchone()
    return row and _token(row)


def by_id(connection: sqlite3.Connection, token_id: int) -> Token | None:
    """The token of an id."""
    row = connection.execute(f"{_FROM} WHERE tokens.id = ?", (token_id,)).fetchone()
    return row and _token(row)


def of_users(connection: sqlite3.Connection, user_id: int | None, after: int, limit: int) -> list[Token]:
    """Tokens of a user, or of all, with an id above `after`."""
    query = f"{_FROM} WHERE (?1 IS NULL OR user_id = ?1) AND tokens.id > ?2 ORDER BY tokens.id LIMIT ?3"
    return [_token(row) for row in connection.execute(query, (user_id, after, limit))]


def note_use(connection: sqlite3.Connection, token_id: int, now: float) -> None:
    """Remember when a token was shown."""
    connection.execute("UPDATE tokens SET used = ? WHERE id = ?", (now, token_id))


def revoke(connection: sqlite3.Connection, token_id: int) -> None:
    """Delete a token."""
    connection.execute("DELETE FROM tokens WHERE id = ?", (token_id,))


def revoke_all(connection: sqlite3.Connection, user_id: int) -> None:
    """Delete all tokens of a user."""
    connection.execute("DELETE FROM tokens WHERE user_id = ?", (user_id,))


def _token(row: sqlite3.Row) -> Token:
    return Token(**{**dict(row), "role": Role(row["role"])})
