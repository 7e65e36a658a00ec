"""Ray for one search on this machine: detached from our terminal, only reachable locally, ended with the search."""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partialmethod
from pathlib import Path
from typing import Any

import ray
from ray._private import services, worker
from ray._private import utils as ray_utils
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

from tuner.driver import guard
from tuner.driver.patching import changed, environment
from tuner.driver.prestart import Workers
from tuner.errors import StudyError, setting
from tuner.machine import Machine, divided_gpus
from tuner.temporary import OwnedFolder
from tuner.worker import begin

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 200 * 2**20  # trials exchange a few kilobytes; data and checkpoints go over the file system
SHUTDOWN_SECONDS = 10.0  # that Ray may take to end before its processes are killed
GONE_SECONDS = 2.0  # the same if Ray is gone already
GUARD_SECONDS = 10.0  # that its guard may take to end remaining processes
LONGEST_PATH = 107  # bytes of a socket's path
_SOCKET = "r/s/sockets/plasma_store"  # below the folder: the longest path that Ray makes there
_NEEDED = ("gcs_server", "raylet")


class LocalRay:
    """Ray's processes, the folder of their files, and the process that cleans up both."""

    def __init__(self, nice: int, workers: Workers) -> None:
        self.folder = OwnedFolder("ray", within=short_folder())
        self.processes: list[subprocess.Popen[bytes]] = []
        self._nice, self._workers = nice, workers
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(self.folder.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def is_gone(self) -> bool:
        """Whether a process that Ray can't run without has ended."""
        return any(process.poll() is not None for process in self.processes if _name(process) in _NEEDED)

    def popen(self) -> type[subprocess.Popen[bytes]]:
        """The function by which Ray starts its processes: each in its own session, out of reach of our signals."""
        started = self

        class Apart(services.ConsolePopen):  # type: ignore[misc]
            def __init__(self, command: list[str], *, env: dict[str, str], **options: Any) -> None:
                command, env = started.as_started(command, env)
                super().__init__(command, env=env, start_new_session=True, **options)
                started.note(self)

        return Apart

    def as_started(self, command: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a process of Ray's; what the user set in the environment stays."""
        variables = {
            "RAY_worker_niceness": str(self._nice),
            **variables,
            "RAY_gcs_server_request_timeout_seconds": "60",
        }
        if Path(command[0]).name != "raylet":
            return command, variables
        return self._workers.raylet_command(command), {**self._workers.environment(), **variables}

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


def _forget_token() -> None:
    """Ray reads its token once per process; the next Ray in this process has another token."""
    AuthenticationTokenLoader.instance().reset_cache()


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
        atexit.unregister(worker.shutdown)  # it would wait again


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

    Raises StudyError if it doesn't start, not even on a second attempt.
    """
    with ExitStack() as stack:
        # The only way to keep Ray's sockets off other interfaces.
        stack.enter_context(changed(services, "get_node_ip_address", lambda *_, **__: LOOPBACK))
        stack.callback(_forget_token)  # the last to run
        stack.enter_context(environment({"RAY_AUTH_TOKEN": secrets.token_hex(32)}))  # it isn't stored in a file
        _forget_token()
        stack.enter_context(environment(_each_instance()))
        started = _start(machine, {**settings, "resources": dict(shares or {})}, lambda: LocalRay(nice, workers))
        try:
            yield started
        finally:
            started.end()


def _each_instance() -> dict[str, str]:
    """If MIG divides a GPU, Ray has to hand out the instances by name, because it counts physical GPUs."""
    names = divided_gpus()
    return {} if names is None else {"CUDA_VISIBLE_DEVICES": names}


def _start(machine: Machine, settings: dict[str, Any], make: Callable[[], LocalRay]) -> LocalRay:
    try:
        return _try_to_start(machine, settings, make())
    except Exception:  # mostly the machine was too busy: Ray gives itself 30 s
        pass
    try:
        return _try_to_start(machine, settings, make())
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StudyError(
            f"a search needs Ray to start on this machine, got no answer from it twice ({reason}); "
            f"try again when the machine is less busy, or name a running cluster with {setting('--address')}"
        ) from error


def _try_to_start(machine: Machine, settings: dict[str, Any], started: LocalRay) -> LocalRay:
    try:
        with _while_starting(started):
            ray.init(
                address="local",  # never a cluster that happens to run here, or that RAY_ADDRESS names
                num_cpus=machine.cpus,
                num_gpus=machine.gpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _node_ip_address=LOOPBACK,
                _temp_dir=str(started.folder.path / "r"),  # Ray opens it to everybody, but not its parent folder
                **settings,
            )
    except BaseException:
        started.end()
        raise
    return started


@contextmanager
def _while_starting(started: LocalRay) -> Iterator[None]:
    # A cluster for one search needs no autoscaler, no forwarding of logs, and no dashboard's process, which would only
    # count usage: three processes fewer to wait for, of 100 MB each.
    less = partialmethod(
        RayParams.__init__,
        no_monitor=True,
        include_log_monitor=False,
        session_name="s",
        dashboard_agent_listen_port=0,  # any: with `ray[default]` two searches would ask for the same port
        setup_worker_path=begin.__file__,
    )
    with (
        changed(RayParams, "__init__", less),
        changed(Node, "start_api_server", _without_dashboard),
        changed(services, "ConsolePopen", started.popen()),
        signals_left_alone(),
    ):
        yield


def _without_dashboard(node: Node, **_: Any) -> None:
    node._webui_url = ""


def signals_left_alone() -> Any:
    """Within the block Ray doesn't handle SIGTERM."""

    def leave_alone(_: Callable[..., None]) -> None:
        return

    return changed(ray_utils, "set_sigterm_handler", leave_alone)


def short_folder() -> Path:
    """A place for the folder of Ray's sockets: the temporary directory unless its path is too long for them.

    Raises StudyError if no other place is writable.
    """
    for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        longest = f"{folder}/tuner-ray-12345678/{_SOCKET}"
        if len(os.fsencode(longest)) <= LONGEST_PATH and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    raise StudyError(
        f"Ray needs a temporary directory with a path of at most {LONGEST_PATH - len(_SOCKET) - 20} bytes that can be "
        f"written to, got {tempfile.gettempdir()!r}; set TMPDIR to another"
    )
