"""Users' rows: read, added, changed, disabled; and their passwords, stored by argon2id (RFC 9106)."""

from __future__ import annotations

import re
import sqlite3
import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role, User

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_COLUMNS = "id, name, role, weight, created, disabled, most_devices, most_hours"
SHORTEST, LONGEST = 12, 1024  # characters of a password
# The second of OWASP's equal choices for argon2id, so that a login takes 19 MiB: the server's memory is small.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
_ONE_AT_A_TIME = threading.Lock()  # a hundred logins at once must not take 2 GB
# A hash of nobody's password, so that a login with an unknown name takes as long as with a known one.
_DECOY = _HASHER.hash("nobody's")


def check_name(name: str) -> str:
    """The name, if a user may have it. Raises ServiceError."""
    if not re.fullmatch(NAME, name):
        raise ServiceError(
            Code.REFUSED,
            "a user's name has 1 to 64 letters, digits, '.', '_' or '-', the first a letter or a digit",
            repr(name)[:80],
            "choose another",
        )
    return name


def all_users(connection: sqlite3.Connection, after: int = 0, limit: int = 200) -> list[User]:
    """Users in the order in which they were added, those with an id above `after`."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM users WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [_user(row) for row in rows]


def by_name(connection: sqlite3.Connection, name: str) -> User | None:
    """The user of a name, ignoring upper and lower case."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM users WHERE name = ?", (name,)).fetchone()
    return row and _user(row)


def by_id(connection: sqlite3.Connection, user_id: int) -> User | None:
    """The user of an id."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM users WHERE id = ?", (user_id,)).fetchone()
    return row and _user(row)


def required(connection: sqlite3.Connection, name: str) -> User:
    """The user of a name. Raises ServiceError if there is none."""
    found = by_name(connection, name)
    if found is None:
        raise ServiceError(
            Code.NOT_FOUND, "a user's name is one that `tuner user list` shows", repr(name)[:80], "check the name"
        )
    return found


def add(connection: sqlite3.Connection, name: str, role: Role, now: float, weight: float = 1.0) -> User:
    """Add a user. Raises ServiceError for a name that is taken."""
    taken = by_name(connection, check_name(name))
    if taken is not None:
        raise ServiceError(
            Code.CONFLICT,
            "each user has a name of their own",
            f"{taken.name!r}, which is taken" + (" by a user who was removed" if taken.disabled else ""),
            f"choose another, or let them back in with `tuner user role {taken.name} {role}`",
        )
    query = "INSERT INTO users (name, role, weight, created) VALUES (?, ?, ?, ?)"
    return User(int(connection.execute(query, (name, role, weight, now)).lastrowid or 0), name, role, weight, now)


def change(connection: sqlite3.Connection, user: User) -> None:
    """Write a user's role, weight, caps and whether they are disabled. Raises ServiceError for the last admin."""
    query = "UPDATE users SET role = ?, weight = ?, disabled = ?, most_devices = ?, most_hours = ? WHERE id = ?"
    caps = (user.most_devices, user.most_hours)
    connection.execute(query, (user.role, user.weight, int(user.disabled), *caps, user.id))
    if admins(connection) == 0:
        raise ServiceError(
            Code.CONFLICT, "a service has at least one admin", f"{user.name!r}, the last one", "make another one first"
        )


def admins(connection: sqlite3.Connection) -> int:
    """How many admins may log in."""
    query = "SELECT COUNT(*) FROM users WHERE role = ? AND NOT disabled"
    return int(connection.execute(query, (Role.ADMIN,)).fetchone()[0])


def password_of(connection: sqlite3.Connection, user_id: int) -> str | None:
    """The hash of a user's password; None if they have none yet."""
    row = connection.execute("SELECT hash FROM passwords WHERE user_id = ?", (user_id,)).fetchone()
    return row and str(row["hash"])


def set_password(connection: sqlite3.Connection, user_id: int, stored: str, now: float) -> None:
    """Write the hash of a user's password."""
    connection.execute("INSERT OR REPLACE INTO passwords VALUES (?, ?, ?)", (user_id, stored, now))


def _user(row: sqlite3.Row) -> User:
    return User(**{**dict(row), "role": Role(row["role"]), "disabled": bool(row["disabled"])})


def check_password(password: str) -> str:
    """The password, if it can be one. Raises ServiceError, which doesn't show it."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise ServiceError(
            Code.REFUSED,
            f"a password has {SHORTEST} to {LONGEST} characters",
            f"{len(password)}",
            "use a longer one, such as four words" if len(password) < SHORTEST else "use a shorter one",
        )
    return password


def hashed(password: str) -> str:
    """What is stored of a password."""
    with _ONE_AT_A_TIME:
        return _HASHER.hash(password.encode("utf-8", "surrogatepass"))


def fits(stored: str | None, password: str) -> bool:
    """Whether the password is right; takes the same time if there is no hash."""
    try:
        with _ONE_AT_A_TIME:
            return _HASHER.verify(stored or _DECOY, password[:LONGEST].encode("utf-8", "surrogatepass")) and bool(
                stored
            )
    except (VerificationError, InvalidHashError):
        return False
