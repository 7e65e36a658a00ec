"""The rows of the queue. Each change of a study's state names the state from which it starts."""

from __future__ import annotations

import json
import sqlite3
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.service.database import webhooks
from tuner.service.errors import Code, ServiceError
from tuner.service.model import MAY_BECOME, OVER, Demand, Device, State, SubmittedStudy

MOST_WORDS = 8  # of a search
_LISTS = ("after", "devices", "options", "facts", "limits", "progress")
_LIGHT = (
    "id, name, user_id, user, state, priority, preemptible, kind, count, least, fixed, after, submitted, changed, "
    "started, ended, run, reason, devices, deaths, external, limits, not_before, attempt, main, room_for, progress"
)  # without columns that only a study's own page shows
_ALL = f"{_LIGHT}, options, facts"
_NAMES = frozenset(name.strip() for name in _ALL.split(",")) - {"id", "state", "changed"} | {"deleted", "wanted"}


def insert(connection: sqlite3.Connection, **columns: Any) -> int:
    """A new row; returns its id."""
    written = _written(columns)
    names, marks = ", ".join(written), ", ".join("?" * len(written))
    cursor = connection.execute(f"INSERT INTO studies ({names}) VALUES ({marks})", list(written.values()))
    return int(cursor.lastrowid or 0)


def get(connection: sqlite3.Connection, study: int) -> SubmittedStudy:
    """The study; raises ServiceError if there is none."""
    row = connection.execute(f"SELECT {_ALL} FROM studies WHERE id = ? AND deleted IS NULL", (study,)).fetchone()
    if row is None:
        raise ServiceError(Code.NOT_FOUND, "a study is named by its number", str(study), "`tuner queue` lists them")
    return _read(row)


def page(
    connection: sqlite3.Connection,
    *,
    states: Collection[State] = (),
    user: str | None = None,
    before: int | None = None,
    limit: int = 100,
    text: str = "",
) -> list[SubmittedStudy]:
    """The newest studies first, those below the id `before`, with every word of `text` in name, user, `@id`, or
    `#tag` of a note about it.
    """
    where, values = ["deleted IS NULL"], list[Any]()
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += list(states)
    if user is not None:
        where.append("user = ?")
        values.append(user)
    if before is not None:
        where.append("id < ?")
        values.append(before)
    for word in [*dict.fromkeys(text.casefold().split())][:MOST_WORDS]:
        if word == "@":  # of a number that is still being typed
            continue
        if word.startswith("#"):
            where.append(
                "EXISTS (SELECT 1 FROM audit WHERE audit.study = studies.id AND action = 'note' AND "
                "json_extract(detail, '$.trial') IS NULL AND "
                "instr(' ' || casefold(replace(json_extract(detail, '$.text'), char(10), ' ')), ?))"
            )
            values.append(f" {word}")
            continue
        where.append("instr(casefold(name || ' ' || user || ' @' || id || ' '), ?)")
        values.append(f"{word} " if word.startswith("@") else word)
    query = f"SELECT {_ALL} FROM studies WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?"
    return [_read(row) for row in connection.execute(query, [*values, limit])]


def of_ids(connection: sqlite3.Connection, ids: Sequence[int]) -> list[SubmittedStudy]:
    """These studies, as far as there are such, in any order."""
    query = f"SELECT {_ALL} FROM studies WHERE deleted IS NULL AND id IN ({', '.join('?' * len(ids))})"
    return [_read(row) for row in connection.execute(query, ids)]


def queued(connection: sqlite3.Connection) -> dict[int, str]:
    """The studies in the queue with their users' names."""
    query = "SELECT id, user FROM studies WHERE state = ? AND deleted IS NULL ORDER BY id"
    return dict(connection.execute(query, (State.QUEUED,)).fetchall())


def in_states(connection: sqlite3.Connection, states: Iterable[State]) -> list[SubmittedStudy]:
    """All studies in these states in the order of submission, without their options and facts."""
    wanted = list(states)
    query = f"SELECT {_LIGHT} FROM studies WHERE state IN ({', '.join('?' * len(wanted))}) ORDER BY id"
    return [_read(row) for row in connection.execute(query, wanted)]


def to_schedule(connection: sqlite3.Connection) -> list[SubmittedStudy]:
    """The studies for a plan: those that wait, that hold devices, or for whose end others wait."""
    live = [state for state in State if state not in OVER]
    marks = ", ".join("?" * len(live))
    query = f"SELECT {_LIGHT} FROM studies WHERE state IN ({marks})"
    found = {row["id"]: _read(row) for row in connection.execute(query, live)}
    found |= {study.id: study for study in holding(connection)}
    awaited = {each for study in found.values() for each in study.after} - found.keys()
    for each in awaited:
        row = connection.execute(f"SELECT {_LIGHT} FROM studies WHERE id = ?", (each,)).fetchone()
        if row is not None:
            found[each] = _read(row)
    return sorted(found.values(), key=lambda study: study.id)


def holding(connection: sqlite3.Connection) -> list[SubmittedStudy]:
    """Studies whose drivers hold devices, whatever their state."""
    return [_read(row) for row in connection.execute(f"SELECT {_LIGHT} FROM studies WHERE devices != '[]' ORDER BY id")]


def change(
    connection: sqlite3.Connection, study: int, leaves: State, becomes: State, now: float, **columns: Any
) -> None:
    """Change a study's state, and other columns with it. Raises ServiceError if it has already left the named state."""
    if becomes not in MAY_BECOME[leaves]:
        raise ServiceError(
            Code.CONFLICT, "a study's state allows only some changes", f"{leaves} to {becomes}", "look at it again"
        )
    written = _written({"state": becomes, "changed": now, **columns})
    sets = ", ".join(f"{name} = ?" for name in written)
    values = [*written.values(), study, leaves]
    done = connection.execute(f"UPDATE studies SET {sets} WHERE id = ? AND state = ? AND deleted IS NULL", values)
    if done.rowcount != 1:
        state = get(connection, study).state
        raise ServiceError(
            Code.CONFLICT, f"study {study} has to be {leaves} for this", f"one that is {state}", "look at it again"
        )
    if becomes in (State.FINISHED, State.FAILED, State.PAUSED):
        webhooks.tell(connection, get(connection, study), becomes, None, now)


def update(connection: sqlite3.Connection, study: int, **columns: Any) -> None:
    """Change columns other than the state."""
    written = _written(columns)
    if not written.keys() <= _NAMES:
        raise ValueError(f"no such columns: {', '.join(written.keys() - _NAMES)}")
    sets = ", ".join(f"{name} = ?" for name in written)
    connection.execute(f"UPDATE studies SET {sets} WHERE id = ?", [*written.values(), study])


def typical_seconds(connection: sqlite3.Connection, newest: int = 500) -> dict[str, float]:
    """How long the newest finished studies of each name took, the median."""
    query = "SELECT name, ended - started FROM studies WHERE state = ? AND started IS NOT NULL ORDER BY id DESC LIMIT ?"
    found: dict[str, list[float]] = {}
    for name, seconds in connection.execute(query, (State.FINISHED, newest)):
        found.setdefault(name, []).append(max(0.0, seconds))
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def count(connection: sqlite3.Connection, states: Collection[State], user_id: int | None = None) -> int:
    """How many studies are in these states, of one user or of all."""
    query = f"SELECT count(*) FROM studies WHERE deleted IS NULL AND state IN ({', '.join('?' * len(states))})"
    values: list[Any] = list(states)
    if user_id is not None:
        query += " AND user_id = ?"
        values.append(user_id)
    return int(connection.execute(query, values).fetchone()[0])


def wanted_devices(connection: sqlite3.Connection, study: int) -> int | None:
    """How many devices its submission asked for."""
    found: int | None = connection.execute("SELECT wanted FROM studies WHERE id = ?", (study,)).fetchone()[0]
    return found


def _written(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Values in the form of the table."""
    written = dict(columns)
    demand = written.pop("demand", None)
    if demand is not None:
        written |= asdict(demand)
    if "devices" in written:
        written["devices"] = [[one.kind, one.index, one.name] for one in written["devices"]]
    return written | {name: json.dumps(written[name]) for name in _LISTS if name in written}


def _read(row: sqlite3.Row) -> SubmittedStudy:
    told = dict(row)
    demand = Demand(told.pop("kind"), told.pop("count"), told.pop("least"), bool(told.pop("fixed")))
    for name in _LISTS:
        if name in told:
            told[name] = json.loads(told[name])
    told["devices"] = tuple(Device(*one) for one in told["devices"])
    told["after"] = tuple(told["after"])
    told["state"] = State(told["state"])
    flags = {name: bool(told[name]) for name in ("preemptible", "external")}
    return SubmittedStudy(**{**told, **flags}, demand=demand)
