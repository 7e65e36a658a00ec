"""Processes of this machine that the service started: their children, their memory, and how to end them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.machine import python_environment

_PROC = Path("/proc")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|_KEY$", re.IGNORECASE)
END_SECONDS = 5.0  # that killed processes may take to be gone


@dataclass(frozen=True)
class _Seen:
    """A process as /proc shows it; proc(5)."""

    pid: int
    state: str
    parent: int
    session: int
    resident_pages: int


def clean_environment(passed: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process without what looks like a secret, and with what is `passed` on."""
    kept = {name: value for name, value in python_environment().items() if not _SECRET.search(name)}
    return kept | dict(passed or {})


def session_bytes(leader: int) -> int:
    """Memory that the processes of a session, and those below its leader, hold together."""
    return sum(one.resident_pages for one in _belonging(leader)) * os.sysconf("SC_PAGE_SIZE")


def end_session(leader: int) -> bool:
    """Kill all processes of a session and those below its leader, at once; whether all are gone."""
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        living = [one for one in _belonging(leader) if one.state not in "ZX"]
        if not living:
            return True
        for one in sorted(living, key=lambda one: one.pid == leader):  # its leader last: below it the others are found
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, signal.SIGKILL)
        time.sleep(0.01)
    return False


def kill_session(leader: int) -> None:
    """Kill the processes of a session alone: those of other sessions below it end by themselves."""
    for one in _processes():
        if one.session == leader and one.state not in "ZX":
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, signal.SIGKILL)


def _belonging(leader: int) -> list[_Seen]:
    """Those of its session, and those below any of these."""
    seen = {one.pid: one for one in _processes()}
    found = {one.pid for one in seen.values() if leader in (one.session, one.pid)}
    while more := {one.pid for one in seen.values() if one.parent in found} - found:
        found |= more
    return [seen[pid] for pid in found if pid in seen]


def _processes() -> list[_Seen]:
    found = []
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):  # it has ended
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            found.append(_Seen(int(path.parent.name), fields[0], int(fields[1]), int(fields[3]), int(fields[21])))
    return found
