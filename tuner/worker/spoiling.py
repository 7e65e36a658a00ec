"""What a trial changes in its process for all that follows there: put back where that works, otherwise named."""

from __future__ import annotations

import gc
import locale
import multiprocessing
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_WATCHED = {*sys.stdlib_module_names, "numpy", "numpy.random", "torch", "torch.nn.functional"}  # with Python's packages


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:  # it was deleted
        return None


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


_SETTINGS: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "limits of the process": (
        lambda: list(map(resource.getrlimit, _LIMITS)),
        lambda old: list(map(resource.setrlimit, _LIMITS, old)),
    ),
    "the environment": (lambda: dict(os.environ), _set_environment),
    "the working directory": (_folder, os.chdir),
    "the import path": (lambda: list(sys.path), lambda old: setattr(sys, "path", old)),
    "the umask": (_umask, os.umask),
    "a timer": (lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, lambda _: signal.setitimer(signal.ITIMER_REAL, 0)),
    "signal handlers": (lambda: list(map(signal.getsignal, signal.valid_signals())), lambda old: None),
    "a standard stream": (lambda: [os.fstat(each).st_ino for each in range(3)], lambda old: None),
    "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "garbage collection": (gc.isenabled, lambda old: (gc.enable if old else gc.disable)()),
    "the locale": (lambda: locale.setlocale(locale.LC_ALL), lambda old: locale.setlocale(locale.LC_ALL, old)),
    "the timeout of sockets": (socket.getdefaulttimeout, socket.setdefaulttimeout),
    "numpy's floating-point errors": (np.geterr, lambda old: np.seterr(**old)),
    "the start method of processes": (
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda old: multiprocessing.set_start_method(old, force=True),
    ),
}


class ProcessState:
    """The state of this process before a trial: its settings, and the functions of Python, numpy and torch."""

    def __init__(self) -> None:
        self._settings = {name: read() for name, (read, _) in _SETTINGS.items()}
        self._functions = _functions()

    def watch(self) -> None:
        """Take modules in that were loaded meanwhile."""
        self._functions = _functions() | self._functions

    def restore(self) -> list[str]:
        """Put settings back; returns the names of what stays changed."""
        stays, now = [each for each in _SETTINGS if not _put_back(self._settings[each], *_SETTINGS[each])], _functions()
        return stays + [name for name, value in self._functions.items() if not _is_still(value, now.get(name))]


def _put_back(before: Any, read: Callable[[], Any], write: Callable[[Any], object]) -> bool:
    try:
        if read() != before:
            write(before)
        return bool(read() == before)
    except Exception:
        return False


def _functions() -> dict[str, Any]:
    """Functions and classes of watched modules by their names."""
    return {
        f"{module}.{name}": value
        for module, found in sys.modules.copy().items()
        if module in _WATCHED or module.partition(".")[0] in sys.stdlib_module_names
        for name, value in getattr(found, "__dict__", {}).copy().items()
        if callable(value)
    }


def _is_still(before: object, now: object) -> bool:
    """Whether it is the same, or a library has replaced it, as torch does."""
    return now is before or "-packages" in getattr(getattr(now, "__code__", None), "co_filename", "")
