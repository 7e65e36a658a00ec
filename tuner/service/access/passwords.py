"""Passwords: their rules, and how they are stored (argon2id, RFC 9106)."""

from __future__ import annotations

import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from tuner.service.errors import Code, ServiceError

SHORTEST, LONGEST = 12, 1024  # characters
# The second of OWASP's equal choices for argon2id, so that a login takes 19 MiB: the server's memory is small.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
_ONE_AT_A_TIME = threading.Lock()  # a hundred logins at once must not take 2 GB
# A hash of nobody's password, so that a login with an unknown name takes as long as with a known one.
_DECOY = _HASHER.hash("nobody's")


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
