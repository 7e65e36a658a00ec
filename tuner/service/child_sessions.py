"""Processes of this machine that the service started: their children, their memory, and how to end them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from tuner.machine.hardware import python_environment
from tuner.machine.processes import belonging, processes

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|_KEY$", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"://[^/?#\s@]*:[^/?#\s@]*@"  # postgres://user:password@host
    r"|\bhttps?://[^/?#\s@]+@"  # https://token@host
    r"|(pass(word|wd)?|pwd|secret|token|(account|access|api)_?key|signature)[\"']?\s*[=:]\s*[\"']?[^\s;&\"']"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\bBearer \S"
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\b(gh[a-z]_|github_pat_|glpat-|hf_|sk-|xox[a-z]-|eyJ[\w-]+\.eyJ)[\w-]{16,}",
    re.IGNORECASE,
)  # passwords, keys and tokens as libraries write them
END_SECONDS = 5.0  # that killed processes may take to end


def clean_environment(passed: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process without what looks like a secret, except for what is `passed` on.

    Judged by the name of each variable, and by its value: a password may be part of an address.
    """
    whole = python_environment().items()
    kept = {name: value for name, value in whole if not _SECRET.search(name) and not _SECRET_VALUE.search(value)}
    return kept | dict(passed or {})


def session_bytes(leader: int) -> int:
    """Memory that the processes of a session, and those below its leader, hold together."""
    return sum(one.resident_pages for one in belonging(leader, processes())) * os.sysconf("SC_PAGE_SIZE")


def end_session(leader: int) -> bool:
    """Kill all processes of a session and those below its leader, at once; returns whether all are gone.

    The leader is stopped first. It is killed last, once a search that began after it had stopped finds no process below
    it: such a search also finds processes that it started just before, and orphaned ones. A killed process counts until
    it is gone, which takes a moment if it holds much memory.
    """
    until = time.monotonic() + END_SECONDS
    killed: set[tuple[int, int]] = set()
    stopped = False
    while time.monotonic() < until:
        seen = processes()
        inside = {one.pid for one in belonging(leader, seen)}
        living = [
            one for one in seen if one.state not in "ZX" and (one.pid in inside or (one.pid, one.started) in killed)
        ]
        if not living:
            return True
        below = [one for one in living if one.pid != leader]
        _send(leader, signal.SIGKILL if stopped and not below else signal.SIGSTOP)
        stopped = any(one.pid == leader and one.state == "T" for one in living)
        for one in below:
            _send(one.pid, signal.SIGKILL)
            killed.add((one.pid, one.started))
        time.sleep(0.01)
    _send(leader, signal.SIGKILL)
    return False


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_session(leader: int) -> None:
    """Kill only the processes of a session: those of other sessions below it end by themselves."""
    for one in processes():
        if one.session == leader and one.state not in "ZX":
            _send(one.pid, signal.SIGKILL)
