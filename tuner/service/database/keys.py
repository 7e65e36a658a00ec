"""Submissions that are sent again with the same key: a client that got no answer may repeat a request."""

from __future__ import annotations

import sqlite3

from tuner.service.errors import Code, ServiceError

KEPT_SECONDS = 2 * 24 * 3600.0


def known(connection: sqlite3.Connection, user_id: int, key: str, digest: str) -> int | None:
    """The study that was submitted with the key; None for a new one. Raises ServiceError for another submission."""
    query = "SELECT study, digest FROM idempotency_keys WHERE user_id = ? AND key = ?"
    row = connection.execute(query, (user_id, key)).fetchone()
    if row is None:
        return None
    if row["digest"] != digest:
        raise ServiceError(
            Code.CONFLICT,
            "a key belongs to one submission",
            f"another one with the key of study {row['study']}",
            "use a new key",
        )
    return int(row["study"])


def remember(connection: sqlite3.Connection, user_id: int, key: str, digest: str, study: int, now: float) -> None:
    """Store the key for two days."""
    connection.execute("DELETE FROM idempotency_keys WHERE time < ?", (now - KEPT_SECONDS,))
    connection.execute("INSERT INTO idempotency_keys VALUES (?, ?, ?, ?, ?)", (user_id, key, digest, study, now))
