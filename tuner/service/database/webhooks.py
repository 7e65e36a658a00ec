"""The rows of webhooks and of their messages; a delivery is written in the same transaction as the change it
reports.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner.service.model import Progress, Role, SubmittedStudy

EVENTS = ("finished", "failed", "new_best", "paused")
KEPT_SECONDS = 30 * 86_400.0  # that a delivery stays visible
BEST_SECONDS = 2.0  # between two messages to a webhook about best values of a study
MOST_WAITING = 1000  # deliveries of one webhook; if there are more, the newest are given up at once
_HOOK = "webhooks.id, webhooks.user_id, users.name AS user, url, events, everybodys, webhooks.created"
_FROM = f"SELECT {_HOOK} FROM webhooks JOIN users ON users.id = webhooks.user_id"
_DELIVERY = "id, webhook, event, study, body, created, state, tries, next_try, tried, status, problem"


@dataclass(frozen=True)
class Webhook:
    """An address that gets messages about studies, without its secret; times as `User`'s."""

    id: int
    user_id: int
    user: str
    url: str
    events: tuple[str, ...]
    everybodys: bool
    created: float


@dataclass(frozen=True)
class Delivery:
    """One message to a webhook: "waiting" for a try, "delivered", or "dead" after its last one."""

    id: int
    webhook: int
    event: str
    study: int | None
    body: str
    created: float
    state: str
    tries: int
    next_try: float
    tried: float | None
    status: int | None  # of the newest answer
    problem: str | None


def add(
    connection: sqlite3.Connection,
    user_id: int,
    url: str,
    events: Collection[str],
    everybodys: bool,
    secret: str,
    now: float,
) -> int:
    """A new webhook; its id."""
    query = "INSERT INTO webhooks (user_id, url, events, everybodys, secret, created) VALUES (?, ?, ?, ?, ?, ?)"
    values = (user_id, url, json.dumps(list(events)), everybodys, secret, now)
    return int(connection.execute(query, values).lastrowid or 0)


def by_id(connection: sqlite3.Connection, hook: int) -> Webhook | None:
    """The webhook of an id."""
    row = connection.execute(f"{_FROM} WHERE webhooks.id = ?", (hook,)).fetchone()
    return row and _hook(row)


def of_users(connection: sqlite3.Connection, user_id: int | None, after: int, limit: int) -> list[Webhook]:
    """Webhooks of a user, or of all, with an id above `after`."""
    query = f"{_FROM} WHERE (?1 IS NULL OR user_id = ?1) AND webhooks.id > ?2 ORDER BY webhooks.id LIMIT ?3"
    return [_hook(row) for row in connection.execute(query, (user_id, after, limit))]


def count(connection: sqlite3.Connection, user_id: int) -> int:
    """How many webhooks a user has."""
    return int(connection.execute("SELECT count(*) FROM webhooks WHERE user_id = ?", (user_id,)).fetchone()[0])


def secret_of(connection: sqlite3.Connection, hook: int) -> str | None:
    """The secret that signs its messages; None for a webhook that was deleted."""
    row = connection.execute("SELECT secret FROM webhooks WHERE id = ?", (hook,)).fetchone()
    return row and str(row["secret"])


def remove(connection: sqlite3.Connection, hook: int) -> None:
    """Delete a webhook with its deliveries."""
    connection.execute("DELETE FROM webhooks WHERE id = ?", (hook,))


# Deliveries


def tell(connection: sqlite3.Connection, study: SubmittedStudy, event: str, best: Progress | None, now: float) -> None:
    """Write a delivery for each webhook concerned: the study's user's, or an admin's for all studies."""
    query = (
        "SELECT webhooks.id, events FROM webhooks JOIN users ON users.id = webhooks.user_id WHERE NOT users.disabled "
        "AND (webhooks.user_id = ? OR (everybodys AND users.role = ?))"
    )
    hooks = [
        row["id"] for row in connection.execute(query, (study.user_id, Role.ADMIN)) if f'"{event}"' in row["events"]
    ]
    if not hooks:
        return
    body = message(event, now, study, best)
    for hook in hooks:
        if event != "new_best":
            put(connection, hook, event, study.id, body, now)
        elif not _replaced(connection, hook, study.id, body, now):
            put(connection, hook, event, study.id, body, now, now + BEST_SECONDS)
    connection.execute("DELETE FROM deliveries WHERE created < ?", (now - KEPT_SECONDS,))


def tell_best(connection: sqlite3.Connection, study: SubmittedStudy, best: Progress, now: float) -> None:
    """Like `tell`, for a value that is better than the last one that was sent."""
    if best.best is None:
        return
    row = connection.execute("SELECT value FROM told_best WHERE study = ?", (study.id,)).fetchone()
    if row is not None and not (best.best < row["value"] if best.mode == "min" else best.best > row["value"]):
        return
    connection.execute("INSERT OR REPLACE INTO told_best VALUES (?, ?)", (study.id, best.best))
    tell(connection, study, "new_best", best, now)


def message(event: str, now: float, study: SubmittedStudy | None, best: Progress | None) -> str:
    """A delivery's body."""
    told: dict[str, Any] = {"event": event, "time": now, "study": None, "best": None}
    if study is not None:
        told["study"] = {name: getattr(study, name) for name in ("id", "name", "user", "state", "reason")}
    found: Mapping[str, Any] = asdict(best) if best is not None else study.progress if study is not None else {}
    if found.get("best") is not None:
        told["best"] = {
            **{name: found.get(name) for name in ("metric", "mode")},
            "value": found["best"],
            "trial": found.get("best_trial"),
        }
    return json.dumps(told)


def put(
    connection: sqlite3.Connection,
    hook: int,
    event: str,
    study: int | None,
    body: str,
    now: float,
    first: float | None = None,
    *,
    dead: str | None = None,
) -> int:
    """Add a delivery, to be tried from `first` on, by default now, or `dead` for a reason; returns its id."""
    query = "SELECT count(*) FROM deliveries WHERE webhook = ? AND state = 'waiting'"
    if dead is None and connection.execute(query, (hook,)).fetchone()[0] >= MOST_WAITING:
        dead = f"{MOST_WAITING} others waited"
    values = (hook, event, study, body, now, first or now, "waiting" if dead is None else "dead", dead)
    query = (
        "INSERT INTO deliveries (webhook, event, study, body, created, next_try, state, problem) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    )
    return int(connection.execute(query, values).lastrowid or 0)


def delivery(connection: sqlite3.Connection, number: int) -> Delivery | None:
    """The delivery of an id."""
    row = connection.execute(f"SELECT {_DELIVERY} FROM deliveries WHERE id = ?", (number,)).fetchone()
    return row and Delivery(**row)


def deliveries_of(connection: sqlite3.Connection, hook: int, before: int | None, limit: int) -> list[Delivery]:
    """A webhook's deliveries, the newest first, those below the id `before`."""
    where = "webhook = ?1 AND (?2 IS NULL OR id < ?2)"
    query = f"SELECT {_DELIVERY} FROM deliveries WHERE {where} ORDER BY id DESC LIMIT ?3"
    return [Delivery(**row) for row in connection.execute(query, (hook, before, limit))]


def due(connection: sqlite3.Connection, now: float) -> list[Delivery]:
    """The first delivery of each webhook that may be tried now; those of disabled users wait."""
    names = ", ".join(f"deliveries.{name}" for name in _DELIVERY.split(", "))
    query = (
        f"SELECT {names}, MIN(deliveries.next_try) AS least "
        "FROM deliveries JOIN webhooks ON webhooks.id = webhook JOIN users ON users.id = webhooks.user_id "
        "WHERE state = 'waiting' AND next_try <= ? AND NOT users.disabled GROUP BY webhook ORDER BY least"
    )
    return [
        Delivery(**{name: row[name] for name in _DELIVERY.split(", ")}) for row in connection.execute(query, (now,))
    ]


def tried(
    connection: sqlite3.Connection,
    number: int,
    state: str,
    now: float,
    next_try: float,
    status: int | None,
    problem: str | None,
) -> None:
    """Record the result of a try."""
    query = (
        "UPDATE deliveries SET state = ?, tries = tries + 1, tried = ?, next_try = ?, status = ?, problem = ? "
        "WHERE id = ?"
    )
    connection.execute(query, (state, now, next_try, status, problem, number))


def _replaced(connection: sqlite3.Connection, hook: int, study: int, body: str, now: float) -> bool:
    """Replace a best value that isn't due yet by the newer one (a search may find many); whether there was one."""
    query = (
        "UPDATE deliveries SET body = ? WHERE webhook = ? AND study = ? AND event = 'new_best' AND tries = 0 "
        "AND state = 'waiting' AND next_try > ?"
    )
    return connection.execute(query, (body, hook, study, now)).rowcount > 0


def _hook(row: sqlite3.Row) -> Webhook:
    told = dict(row)
    return Webhook(**{**told, "events": tuple(json.loads(told["events"])), "everybodys": bool(told["everybodys"])})
