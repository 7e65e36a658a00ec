"""Predictions of the ends of studies, and how often they held: the record of the time left.

For each study that ends by itself, the last prediction before half of its time counts.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

FIRST_SECONDS = 5.0  # until the first prediction after a study's start; then at each doubling
MOST = 10  # studies of the record


@dataclass(frozen=True)
class LeftRecord:
    """How many of the last studies that ended by themselves ended inside the predicted interval."""

    held: int
    studies: int


def note(connection: sqlite3.Connection, study: int, now: float, low: float, high: float) -> None:
    """Store the interval, in seconds since 1970, in which the study is now predicted to end."""
    connection.execute("INSERT OR REPLACE INTO foretold VALUES (?, ?, ?, ?)", (study, now, low, high))


def due(connection: sqlite3.Connection, study: int, started: float, now: float) -> bool:
    """Whether the study's time has doubled since the last note."""
    last = connection.execute("SELECT max(time) FROM foretold WHERE study = ?", (study,)).fetchone()[0]
    return now - started >= (FIRST_SECONDS if last is None else 2 * (last - started))


def forget(connection: sqlite3.Connection, study: int) -> None:
    """Somebody changed how long the study takes: earlier predictions no longer count."""
    connection.execute("DELETE FROM foretold WHERE study = ?", (study,))


def ended(connection: sqlite3.Connection, study: int, started: float, now: float) -> None:
    """The study has ended by itself: note whether the prediction held."""
    query = "SELECT low, high FROM foretold WHERE study = ? AND time <= ? ORDER BY time DESC LIMIT 1"
    row = connection.execute(query, (study, started + (now - started) / 2)).fetchone()
    if row is not None:
        held = row["low"] <= now <= row["high"]
        connection.execute("INSERT OR REPLACE INTO foretellings VALUES (?, ?, ?)", (study, now, int(held)))
    forget(connection, study)


def record(connection: sqlite3.Connection) -> LeftRecord | None:
    """How often predictions held lately; None if no study with a prediction has ended yet."""
    rows = connection.execute("SELECT held FROM foretellings ORDER BY ended DESC LIMIT ?", (MOST,)).fetchall()
    return LeftRecord(sum(row["held"] for row in rows), len(rows)) if rows else None
