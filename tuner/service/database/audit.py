"""Who changed what, written in the transaction of the change itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.service.model import User

ITSELF = "tuner"  # the author of the service's own changes


@dataclass(frozen=True)
class AuditEntry:
    """One change: when (seconds since 1970), by whom, what, of which study, and its details."""

    id: int
    time: float
    user: str
    action: str
    study: int | None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyChange:
    """A change of a study: its id in the audit, and the state that the study was in after it."""

    id: int
    action: str
    study: int
    state: str


def write(
    connection: sqlite3.Connection, now: float, by: User | None, action: str, study: int | None = None, **detail: Any
) -> None:
    """Add an entry after its change; without a user it is the service's own change."""
    connection.execute(
        "INSERT INTO audit (time, user_id, user, action, study, detail, state) "
        "VALUES (?, ?, ?, ?, ?, ?, (SELECT state FROM studies WHERE id = ?))",
        (now, by and by.id, ITSELF if by is None else by.name, action, study, json.dumps(detail, default=str), study),
    )


def newest(connection: sqlite3.Connection) -> int:
    """The id of the newest entry, 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM audit").fetchone()[0])


def changes(connection: sqlite3.Connection, after: int, until: int | None, limit: int) -> list[StudyChange]:
    """The first changes of studies after an id, up to another."""
    query = (
        "SELECT id, action, study, state FROM audit WHERE id > ? AND (? IS NULL OR id <= ?) AND study IS NOT NULL "
        "AND state IS NOT NULL ORDER BY id LIMIT ?"
    )
    return [StudyChange(**dict(row)) for row in connection.execute(query, (after, until, until, limit))]


def notes(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    """The texts of the notes about these studies, the oldest first; those about single trials are left out."""
    found = dict[int, list[str]]()
    query = (
        "SELECT study, json_extract(detail, '$.text') FROM audit WHERE action = 'note' AND "
        f"json_extract(detail, '$.trial') IS NULL AND study IN ({', '.join('?' * len(ids))}) ORDER BY id"
    )
    for study, text in connection.execute(query, ids):
        found.setdefault(study, []).append(text)
    return found


def entries(
    connection: sqlite3.Connection, *, study: int | None = None, before: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """The newest entries first, of one study or of all, those below the id `before`."""
    where = "(:study IS NULL OR study = :study) AND (:before IS NULL OR id < :before)"
    query = f"SELECT id, time, user, action, study, detail FROM audit WHERE {where} ORDER BY id DESC LIMIT :limit"
    rows = connection.execute(query, {"study": study, "before": before, "limit": limit})
    return [AuditEntry(**{**dict(row), "detail": json.loads(row["detail"])}) for row in rows]
