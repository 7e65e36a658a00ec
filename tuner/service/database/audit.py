"""Who changed what, written in the transaction of the change itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.service.model import User

ITSELF = "tuner"  # the name under which the service's own changes stand


@dataclass(frozen=True)
class AuditEntry:
    """One change: when (seconds since 1970), by whom, what, of which study, and its details."""

    id: int
    time: float
    user: str
    action: str
    study: int | None
    detail: Mapping[str, Any] = field(default_factory=dict)


def write(
    connection: sqlite3.Connection, now: float, by: User | None, action: str, study: int | None = None, **detail: Any
) -> None:
    """Add an entry; without a user it is the service's own change."""
    connection.execute(
        "INSERT INTO audit (time, user_id, user, action, study, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (now, by and by.id, ITSELF if by is None else by.name, action, study, json.dumps(detail, default=str)),
    )


def entries(
    connection: sqlite3.Connection, *, study: int | None = None, before: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """The newest entries first, of one study or of all, those below the id `before`."""
    where = "(:study IS NULL OR study = :study) AND (:before IS NULL OR id < :before)"
    query = f"SELECT id, time, user, action, study, detail FROM audit WHERE {where} ORDER BY id DESC LIMIT :limit"
    rows = connection.execute(query, {"study": study, "before": before, "limit": limit})
    return [AuditEntry(**{**dict(row), "detail": json.loads(row["detail"])}) for row in rows]
