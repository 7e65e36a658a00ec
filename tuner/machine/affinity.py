"""The CPUs on which a process and all that it started may run."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def confine(cpus: Collection[int]) -> None:
    """Let this process, and those below it, run on these CPUs alone; what they start later inherits this."""
    confined: set[int] = set()
    while threads := _threads(_below(os.getpid())) - confined:  # again, as one may have forked meanwhile
        for thread in sorted(threads):
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, cpus)
        confined |= threads


def _below(process: int) -> set[int]:
    """The process, and all that have it as an ancestor; proc(5)."""
    parents = {}
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _threads(processes: Collection[int]) -> set[int]:
    found = set[int]()
    for process in processes:
        with suppress(OSError):
            found |= {int(path.name) for path in (_PROC / str(process) / "task").iterdir()}
    return found
