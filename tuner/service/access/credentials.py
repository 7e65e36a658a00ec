"""Secrets of 256 bits, and the hashes that are stored instead."""

from __future__ import annotations

import hashlib
import re
import secrets

PREFIX = "tuner_"  # so that people and scanners recognise a leaked secret
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


def new_secret() -> str:
    """A secret that nobody can guess; it is shown once and never stored."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """The hash that is stored. One round of SHA-256 is enough, because 256 random bits can't be guessed from it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def holds_secret(text: str) -> bool:
    """Whether a text contains a secret."""
    return _TOKEN.search(text) is not None


def without_secrets(text: str) -> str:
    """The text with what looks like a secret left out, for messages and logs."""
    return _TOKEN.sub(f"{PREFIX}…", text)
