"""What a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "notice", "failed", "none here", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One line of `tuner doctor`.

    Attributes:
        status: a search works with "notice", less well; it doesn't with "failed"
        said: what was found
        fix: what to do; empty if nothing
        check: name of the check; set later, like the next
        where: "this machine", "CPU", "GPU 0"
    """

    status: Status
    said: str
    fix: str = ""
    check: str = ""
    where: str = ""

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def ok(said: str) -> Finding:
    """All is well."""
    return Finding("ok", said)


def notice(said: str, fix: str) -> Finding:
    """A search works, less well than it could."""
    return Finding("notice", said, fix)


def failed(said: str, fix: str) -> Finding:
    """A search won't work."""
    return Finding("failed", said, fix)


def none_here(said: str = "none here") -> Finding:
    """There is nothing to check on this machine."""
    return Finding("none here", said)
