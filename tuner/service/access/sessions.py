"""Sessions: how a browser identifies itself after its user has logged in."""

from __future__ import annotations

import sqlite3

from tuner.service.access.credentials import digest

HOURS = 7 * 24.0


def add(connection: sqlite3.Connection, user_id: int, secret: str, now: float) -> float:
    """Store a session's hash; returns when it ends."""
    connection.execute("DELETE FROM sessions WHERE expires < ?", (now,))
    expires = now + HOURS * 3600
    connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", (digest(secret), user_id, now, expires))
    return expires


def shown(connection: sqlite3.Connection, secret: str, now: float) -> tuple[int, float] | None:
    """The user's id and the end of a session that is still valid."""
    query = "SELECT user_id, expires FROM sessions WHERE hash = ? AND expires > ?"
    row = connection.execute(query, (digest(secret), now)).fetchone()
    return row and (int(row["user_id"]), float(row["expires"]))


def end(connection: sqlite3.Connection, secret: str) -> None:
    """Forget one session."""
    connection.execute("DELETE FROM sessions WHERE hash = ?", (digest(secret),))


def end_all(connection: sqlite3.Connection, user_id: int) -> None:
    """Forget all sessions of a user."""
    connection.execute("DELETE FROM sessions WHERE user_id = ?", (user_id,))
