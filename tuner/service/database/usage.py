"""Who held how many devices for how long, and how this counts in the queue's order."""

from __future__ import annotations

import math
import sqlite3

from tuner.service.model import EXTERNAL, Device, State, UsedDevices
from tuner.study.budget import SECONDS_PER_HOUR

HALF_LIFE_SECONDS = 24 * 3600.0
WEEK_SECONDS = 7 * 24 * 3600.0  # over which a cap of device-hours counts
FORGOTTEN_SECONDS = 14 * HALF_LIFE_SECONDS  # after which use counts less than a ten-thousandth


def begin(connection: sqlite3.Connection, study: int, user_id: int, devices: tuple[Device, ...], now: float) -> None:
    """Devices are held from now on; the slot of a study whose trials run elsewhere doesn't count as a device."""
    if devices and devices[0].kind != EXTERNAL:
        connection.execute(
            "INSERT INTO usage (study, user_id, kind, devices, started) VALUES (?, ?, ?, ?, ?)",
            (study, user_id, devices[0].kind, len(devices), now),
        )


def resize(connection: sqlite3.Connection, study: int, user_id: int, devices: tuple[Device, ...], now: float) -> None:
    """The study holds other devices from now on."""
    end(connection, study, now)
    begin(connection, study, user_id, devices, now)


def end(connection: sqlite3.Connection, study: int, now: float) -> None:
    """Note that its devices are free."""
    connection.execute("UPDATE usage SET ended = max(?, started) WHERE study = ? AND ended IS NULL", (now, study))


def decayed(connection: sqlite3.Connection, now: float) -> dict[int, float]:
    """Device-hours by the user's id; each hour counts half as much a day later, as in fair-share schedulers."""
    query = "SELECT user_id, devices, started, ended FROM usage WHERE ended IS NULL OR ended > ?"
    found: dict[int, float] = {}
    for user_id, devices, started, ended in connection.execute(query, (now - FORGOTTEN_SECONDS,)):
        worth = devices * _worth(now - started, now - (now if ended is None else ended))
        found[user_id] = found.get(user_id, 0.0) + worth / SECONDS_PER_HOUR
    return found


def of_users(connection: sqlite3.Connection, start: float, now: float) -> dict[int, float]:
    """Device-hours by the user's id, from `start` until now."""
    query = (
        "SELECT user_id, sum(devices * (coalesce(ended, :now) - max(started, :start))) FROM usage "
        "WHERE coalesce(ended, :now) > :start GROUP BY user_id"
    )
    rows = connection.execute(query, {"start": start, "now": now})
    return {user_id: max(0.0, seconds) / SECONDS_PER_HOUR for user_id, seconds in rows}


def since(connection: sqlite3.Connection, start: float, now: float) -> list[UsedDevices]:
    """Device-hours of each study from `start` until now, the largest first."""
    query = (
        "SELECT studies.id, studies.name, studies.user, usage.kind, studies.state, "
        "sum(usage.devices * (coalesce(usage.ended, :now) - max(usage.started, :start))) AS seconds "
        "FROM usage JOIN studies ON studies.id = usage.study "
        "WHERE coalesce(usage.ended, :now) > :start GROUP BY studies.id, usage.kind ORDER BY seconds DESC, studies.id"
    )
    rows = connection.execute(query, {"start": start, "now": now})
    return [
        UsedDevices(study, name, user, kind, max(0.0, seconds) / SECONDS_PER_HOUR, State(state))
        for study, name, user, kind, state, seconds in rows
    ]


def _worth(oldest: float, newest: float) -> float:
    """Weighted seconds between two ages: the integral of a decay by half in HALF_LIFE_SECONDS."""
    scale = HALF_LIFE_SECONDS / math.log(2)
    return scale * (math.exp(-max(0.0, newest) / scale) - math.exp(-max(0.0, oldest) / scale))
