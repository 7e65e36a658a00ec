"""Processes of this machine as /proc shows them, and the CPUs on which they may run."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it; proc(5)."""

    pid: int
    state: str
    parent: int
    session: int
    started: int  # clock ticks after the machine's start; tells processes with the same id apart
    resident_pages: int


def belonging(leader: int, seen: list[Process]) -> list[Process]:
    """The processes of the session, and those below any of these."""
    found = {one.pid for one in seen if leader in (one.session, one.pid)}
    while more := {one.pid for one in seen if one.parent in found} - found:
        found |= more
    return [one for one in seen if one.pid in found]


def processes() -> list[Process]:
    """All that run now."""
    found = []
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):  # it has ended
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            state, parent, _, session = fields[:4]
            pid, started, pages = int(path.parent.name), int(fields[19]), int(fields[21])
            found.append(Process(pid, state, int(parent), int(session), started, pages))
    return found


def confine(cpus: Collection[int]) -> None:
    """Let this process, and those below it, run on these CPUs alone; what they start later inherits this."""
    confined: set[int] = set()
    while threads := _threads(belonging(os.getpid(), processes())) - confined:  # again: one may have forked meanwhile
        for thread in sorted(threads):
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, cpus)
        confined |= threads


def _threads(seen: Collection[Process]) -> set[int]:
    found = set[int]()
    for process in seen:
        with suppress(OSError):
            found |= {int(path.name) for path in (_PROC / str(process.pid) / "task").iterdir()}
    return found
