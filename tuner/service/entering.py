"""Logging in to a service from a terminal: a password becomes a token, which is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tuner.service import logins
from tuner.service.connection import Connection


@dataclass(frozen=True)
class Login:
    """A login: the user, the service, and the file with the token."""

    url: str
    user: str
    role: str
    file: Path


def accept(url: str, secret: str, name: str, password: str) -> str:
    """Set a password by a link that works once; returns the user's name. Raises RequestError."""
    body = {"secret": secret, "password": password, "name": name}
    return str(Connection(url).ask("POST", "/welcome", body)["name"])


def log_in(url: str, name: str, password: str, device: str, days: float | None = None) -> Login:
    """Log in, store a token that is named after this machine, and end the session. Raises RequestError."""
    connection = Connection(url)
    with connection.open("POST", "/login", {"name": name, "password": password}) as answer:
        user = json.loads(answer.read())
        cookie = str(answer.headers["set-cookie"]).partition(";")[0]
    as_browser = {"Cookie": cookie, "Origin": connection.url}
    body = {"name": device[:100]} | ({} if days is None else {"days": days})
    token = connection.ask("POST", "/tokens", body, headers=as_browser)
    connection.ask("POST", "/logout", headers=as_browser)
    return Login(connection.url, str(user["name"]), str(user["role"]), logins.keep(connection.url, token["secret"]))
