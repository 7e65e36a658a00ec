"""Logging in to a service from a terminal: a password becomes a token, kept in a file that nobody else can read."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import StudyError
from tuner.service.http_client import Connection, checked_url

SERVER, TOKEN = "TUNER_SERVER", "TUNER_TOKEN"  # environment variables, which take precedence


def server_of(url: str | None) -> str:
    """The given address, or that of $TUNER_SERVER or of the last login. Raises StudyError if there is none."""
    found = url or os.environ.get(SERVER) or _read().get("server")
    if not found:
        raise StudyError("a command for a service needs its address, got none; log in first: tuner login URL")
    return checked_url(str(found))


def token_of(url: str) -> str | None:
    """The token for a service: of $TUNER_TOKEN, or of the login; None if there is neither."""
    found = os.environ.get(TOKEN) or _read().get("tokens", {}).get(url)
    return str(found) if found else None


def keep(url: str, token: str) -> Path:
    """Store a token, and the address for later commands; returns the file."""
    known = _read()
    _write({"server": url, "tokens": {**known.get("tokens", {}), url: token}})
    return _file()


def forget(url: str) -> None:
    """Forget the token for a service."""
    known = _read()
    tokens = {other: token for other, token in known.get("tokens", {}).items() if other != url}
    _write({**known, "tokens": tokens})


def _file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tuner" / "logins.json"


def _read() -> dict[str, Any]:
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # logging in again writes a new one
        return {}
    sound = isinstance(found, dict) and isinstance(found.get("tokens", {}), dict)
    return found if sound else {}


def _write(known: dict[str, Any]) -> None:
    """Replace the file; at no time can others than its owner read it."""
    file = _file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent)  # with mode 600
        with os.fdopen(handle, "w", encoding="utf-8") as new:
            json.dump(known, new)
        Path(name).replace(file)
    except OSError as error:
        raise StudyError(
            f"a login is kept in a file, got {str(file)!r}, which can't be written ({error.strerror}); "
            f"set ${TOKEN} instead"
        ) from error


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
    found, headers = connection.content("POST", "/login", {"name": name, "password": password})
    user, cookie = json.loads(found), str(headers["set-cookie"]).partition(";")[0]
    as_browser = {"Cookie": cookie, "Origin": connection.url}
    body = {"name": device[:100]} | ({} if days is None else {"days": days})
    token = connection.ask("POST", "/tokens", body, headers=as_browser)
    connection.ask("POST", "/logout", headers=as_browser)
    return Login(connection.url, str(user["name"]), str(user["role"]), keep(connection.url, token["secret"]))
