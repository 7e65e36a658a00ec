"""Ray for one search on this machine: its processes, their folder, and their end with the search."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray

from tuner.driver import guard
from tuner.driver.patching import environment
from tuner.driver.ray_inside.names import check_needed, present
from tuner.driver.ray_inside.ray_errors import message_of
from tuner.driver.ray_inside.start import Workers, gone, only_reachable_here, quick_start, start
from tuner.errors import StudyError, setting
from tuner.machine.hardware import NVML_ORDER, Machine, divided_gpus
from tuner.machine.temporary import OwnedFolder

SHUTDOWN_SECONDS = 10.0  # that Ray may take to end before its processes are killed
GONE_SECONDS = 2.0  # the same if Ray is gone already
GUARD_SECONDS = 10.0  # that its guard may take to end remaining processes
LONGEST_PATH = 107  # bytes of a socket's path
_SOCKET = "r/s/sockets/plasma_store"  # below the folder: the longest path that Ray makes there
_LONG_SOCKET = "r/session_2026-11-27_08-17-41_123456_1234567/sockets/plasma_store"  # if Ray names its session itself
_NEEDED = ("gcs_server", "raylet")


class LocalRay:
    """Ray's processes, the folder of their files, and the process that cleans up both.

    `failed` is why Ray didn't start as tuner starts it: it is then started plainly.
    """

    def __init__(self, nice: int, workers: Workers, failed: str | None = None) -> None:
        self.failed = failed
        short_name = failed is None and present("fewer_processes")
        self.folder = OwnedFolder("ray", within=short_folder(_SOCKET if short_name else _LONG_SOCKET))
        self.processes: list[subprocess.Popen[bytes]] = []
        self._nice, self._workers = nice, workers
        self._connection_is_gone: Callable[[], bool] = lambda: False
        self._guard = start_guard(self.folder.path)

    def begin(self, machine: Machine, settings: Mapping[str, Any]) -> LocalRay:
        """Start Ray and connect to it."""
        quickly = quick_start(self._workers, self.note) if self.failed is None else nullcontext()
        try:
            with environment({"RAY_worker_niceness": str(self._nice)}), quickly:
                start(machine, self.folder.path / "r", settings)
            if not self.processes:
                self._connection_is_gone = gone()
        except BaseException:
            self.end()
            raise
        return self

    def is_gone(self) -> bool:
        """Whether a process that Ray can't run without has ended."""
        ended = any(process.poll() is not None for process in self.processes if _name(process) in _NEEDED)
        return ended or self._connection_is_gone()

    def note(self, process: subprocess.Popen[bytes]) -> None:
        """A process of Ray's has started."""
        self.processes.append(process)
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):  # the guard was killed: Ray itself and the next search still clean up
            self._guard.stdin.write(f"{process.pid}\n".encode())
            self._guard.stdin.flush()

    def end(self) -> None:
        """Shut Ray down, by force if it takes too long, and delete its files."""
        shut_down(GONE_SECONDS if self.is_gone() else SHUTDOWN_SECONDS)
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(GUARD_SECONDS)
        for process in self.processes:
            process.poll()
        self.folder.delete()


def start_guard(folder: Path) -> subprocess.Popen[bytes]:
    """The process that deletes a folder, and ends the sessions whose leaders it is told, when its input ends."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _name(process: subprocess.Popen[bytes]) -> str:
    """The name of the program that a process runs; arguments[0] is a path."""
    command: Any = process.args
    return Path(command[0]).name


def shut_down(seconds: float) -> None:
    """Disconnect from Ray within `seconds`: the process that disconnecting waits for may be dead."""
    thread = threading.Thread(target=ray.shutdown, name="ray-shutdown", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        atexit.unregister(ray.shutdown)  # it would wait again


@contextmanager
def local_ray(
    machine: Machine,
    settings: dict[str, Any],
    *,
    nice: int,
    shares: Mapping[str, float] | None = None,
    workers: Workers = Workers(),  # noqa: B008 -- it is frozen
) -> Iterator[LocalRay]:
    """Ray on this machine for the length of the block; `shares` are its resources besides CPUs and GPUs.

    Raises StudyError if it can't start, or doesn't, not even plainly on a second attempt.
    """
    check_needed(ray.__version__)
    with only_reachable_here(), environment(_gpus_as_numbered()):
        make = partial(LocalRay, nice, workers)
        started = _start(machine, {**settings, "resources": dict(shares or {})}, make)
        try:
            yield started
        finally:
            started.end()


def _gpus_as_numbered() -> dict[str, str]:
    """Workers' GPUs have the numbers that NVML gives them, unless the user has chosen another order.

    If MIG divides a GPU, Ray has to hand out the instances by name, because it counts physical GPUs.
    """
    names = divided_gpus()
    return NVML_ORDER if names is None else NVML_ORDER | {"CUDA_VISIBLE_DEVICES": names}


def _start(machine: Machine, settings: dict[str, Any], make: Callable[[str | None], LocalRay]) -> LocalRay:
    """Ray, started as a search needs it; plainly if that fails: its inside may have changed, or the machine is busy."""
    try:
        return make(None).begin(machine, settings)
    except Exception as error:
        failed = message_of(error)
    try:
        return make(failed).begin(machine, settings)
    except UnicodeError as error:
        if sys.getfilesystemencoding() == "utf-8":
            raise StudyError(
                f"a search needs file names in UTF-8, got another one ({message_of(error)}); rename it"
            ) from error
        raise StudyError(
            f"a search needs file names in UTF-8, got Python that takes them for {sys.getfilesystemencoding()} "
            f"({message_of(error)}); unset PYTHONUTF8, or set LC_ALL=C.UTF-8"
        ) from error
    except Exception as error:
        raise StudyError(
            f"a search needs Ray to start on this machine, got no answer from it twice ({message_of(error)}); "
            f"try again when the machine is less busy, or name a running cluster with {setting('--address')}"
        ) from error


def short_folder(socket: str = _SOCKET) -> Path:
    """A place for the folder of Ray's sockets: the temporary directory unless its path is too long for them.

    Raises StudyError if no other place is writable.
    """
    for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        longest = f"{folder}/tuner-ray-12345678/{socket}"
        if len(os.fsencode(longest)) <= LONGEST_PATH and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    raise StudyError(
        f"Ray needs a temporary directory with a path of at most {LONGEST_PATH - len(socket) - 20} bytes that can be "
        f"written to, got {tempfile.gettempdir()!r}; set TMPDIR to another"
    )
