"""What was predicted of the ends of studies, and how often it held: the record of the time left.

Of each study that ends by itself, what counts is what was predicted last before half of its time had gone.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

FIRST_SECONDS = 5.0  # after a study's start; then at each doubling
MOST = 10  # studies of the record


@dataclass(frozen=True)
class LeftRecord:
    """Of the last studies that ended by themselves, how many ended inside what was predicted."""

    held: int
    studies: int


def note(connection: sqlite3.Connection, study: int, now: float, low: float, high: float) -> None:
    """Keep the interval, in seconds since 1970, in which a study will end as it is predicted now."""
    connection.execute("INSERT OR REPLACE INTO foretold VALUES (?, ?, ?, ?)", (study, now, low, high))


def due(connection: sqlite3.Connection, study: int, started: float, now: float) -> bool:
    """Whether twice the time has gone by since what was noted last."""
    last = connection.execute("SELECT max(time) FROM foretold WHERE study = ?", (study,)).fetchone()[0]
    return now - started >= (FIRST_SECONDS if last is None else 2 * (last - started))


def forget(connection: sqlite3.Connection, study: int) -> None:
    """Somebody changed how long the study takes: what was predicted says nothing any more."""
    connection.execute("DELETE FROM foretold WHERE study = ?", (study,))


def ended(connection: sqlite3.Connection, study: int, started: float, now: float) -> None:
    """The study has ended by itself: whether what was predicted has held."""
    query = "SELECT low, high FROM foretold WHERE study = ? AND time <= ? ORDER BY time DESC LIMIT 1"
    row = connection.execute(query, (study, started + (now - started) / 2)).fetchone()
    if row is not None:
        held = row["low"] <= now <= row["high"]
        connection.execute("INSERT OR REPLACE INTO foretellings VALUES (?, ?, ?)", (study, now, int(held)))
    forget(connection, study)


def record(connection: sqlite3.Connection) -> LeftRecord | None:
    """How often it held of late; None if no study has ended yet of which something was predicted."""
    rows = connection.execute("SELECT held FROM foretellings ORDER BY ended DESC LIMIT ?", (MOST,)).fetchall()
    return LeftRecord(sum(row["held"] for row in rows), len(rows)) if rows else None
