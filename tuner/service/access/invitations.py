"""Links that work once: the first admin's, and those by which users set their password."""

from __future__ import annotations

import sqlite3

from tuner.service.access.credentials import digest

HOURS = 72.0
FIRST_ADMIN = 0  # instead of a user's id


def add(connection: sqlite3.Connection, user_id: int, secret: str, now: float) -> float:
    """Store an invitation, which replaces an earlier one of the user; returns when it ends."""
    expires = now + HOURS * 3600
    connection.execute("DELETE FROM invitations WHERE user_id = ? OR expires < ?", (user_id, now))
    connection.execute("INSERT INTO invitations VALUES (?, ?, ?)", (digest(secret), user_id, expires))
    return expires


def used(connection: sqlite3.Connection, secret: str, now: float) -> int | None:
    """Use an invitation, which works once; returns the id of its user, or None if it isn't valid."""
    query = "DELETE FROM invitations WHERE hash = ? AND expires > ? RETURNING user_id"
    row = connection.execute(query, (digest(secret), now)).fetchone()
    return None if row is None else int(row["user_id"])


def withdraw(connection: sqlite3.Connection, user_id: int) -> None:
    """Forget a user's invitations."""
    connection.execute("DELETE FROM invitations WHERE user_id = ?", (user_id,))
