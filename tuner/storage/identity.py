"""Identifies a process, not only by its number, which another process may have by now; says whether it lives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessIdentity:
    """A unique identity of a process; fields that the system doesn't provide are None.

    A number is only valid within its boot and PID namespace: containers of a machine share the boot but not the
    processes. The start time distinguishes a process from an earlier one with the same number.
    """

    pid: int
    boot: str | None = None
    namespace: str | None = None
    start: int | None = None  # clock ticks since the boot

    @classmethod
    def current(cls) -> ProcessIdentity:
        """The identity of this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The identity of a process that runs now, or hasn't been waited for."""
        if not _proc_shows_this_namespace():
            return cls(pid)
        stat = _stat(pid)
        return cls(pid, _boot(), _namespace(), stat and stat[1])

    def lives(self) -> bool | None:
        """Whether it runs; None if that can't be known, because it is of another machine, boot or container."""
        here = ProcessIdentity.current()
        told = (self.boot, self.namespace, self.start)
        if None in told or (self.boot, self.namespace) != (here.boot, here.namespace):
            return None
        if not _exists(self.pid):
            return False
        stat = _stat(self.pid)
        if stat is None:  # hidden, as with /proc mounted hidepid=2
            return None if _exists(self.pid) else False
        state, start = stat
        return state not in "ZX" and start == self.start


def _exists(pid: int) -> bool:
    if not 0 < pid < 2**31 or os.name == "nt":  # no search runs on Windows, where signal 0 is Ctrl-C
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start of a process; proc(5), fields 3 and 22."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()  # the program's name before it may contain anything
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _proc_shows_this_namespace() -> bool:
    """False in a new PID namespace that kept its parent's /proc."""
    return _link(_PROC / "self") == str(os.getpid())


def _boot() -> str | None:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None


def _namespace() -> str | None:
    """The PID and the time namespace; the latter shifts the start times that are seen."""
    pid, time = _link(_PROC / "self/ns/pid"), _link(_PROC / "self/ns/time")
    return None if pid is None else f"{pid} {time or ''}".strip()


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None
