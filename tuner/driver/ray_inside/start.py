"""The start of Ray on this machine: detached from our terminal, only reachable locally, with workers that are ready.

Ray on its own starts a worker when a trial needs one, and the worker imports what the trial needs when it gets it.
Found in Ray 2.60's source (`_private/services.py`, `_private/workers/default_worker.py`, `src/ray/raylet/main.cc`).
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any

import ray

from tuner.driver.patching import environment
from tuner.driver.ray_inside.names import patched, present
from tuner.driver.watchdog import Listening
from tuner.machine.hardware import Machine
from tuner.worker.ray_inside import begin

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 200 * 2**20  # trials exchange a few kilobytes; data and checkpoints go over the file system
IDLE_MILLISECONDS = "30000"  # with Ray's 1,000 a worker may be ended before its first trial gets its CPUs
_TOKEN = secrets.token_hex(32)
_COUNT = "--num_prestart_python_workers="
Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Workers:
    """Worker processes that start together with Ray, not only when the first trial asks for them.

    Attributes:
        count: number of workers, which is the number of trials at once
        modules: each worker imports them as soon as it runs; if one can't be imported, the trial fails later
        cpus: of a trial; OpenMP reads its number of threads when it is loaded, here before the trial begins
    """

    count: int = 1
    modules: tuple[str, ...] = ()
    cpus: float = 1

    def environment(self) -> dict[str, str]:
        """The environment variables that the raylet reads, and its workers inherit."""
        return {
            "RAY_enable_worker_prestart": "1",
            "RAY_idle_worker_killing_time_threshold_ms": IDLE_MILLISECONDS,
            "RAY_preload_python_modules": ",".join(self.modules),
            "OMP_NUM_THREADS": str(max(1, int(self.cpus))),  # as Ray sets it when an actor starts
            "PL_DISABLE_FORK": "1",  # as Ray Tune sets it for every trial
        }

    def raylet_command(self, command: Sequence[str]) -> list[str]:
        """The raylet's command line, with this many workers at its start."""
        return [f"{_COUNT}{self.count}" if part.startswith(_COUNT) else part for part in command]


def start(machine: Machine, folder: Path, settings: Mapping[str, Any]) -> None:
    """Start Ray on this machine, with its files in the folder, and connect to it."""
    ray.init(
        address="local",  # never a cluster that happens to run here, or that RAY_ADDRESS names
        num_cpus=machine.cpus,
        num_gpus=machine.gpus,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _node_ip_address=LOOPBACK,
        _temp_dir=str(folder),  # Ray opens it to everybody, but not its parent folder
        **settings,
    )


@contextmanager
def quick_start(workers: Workers, note: Callable[[Process], None]) -> Iterator[None]:
    """Within the block Ray starts as few processes as it needs, and workers; `note` is called with each process."""
    less = {
        "no_monitor": True,
        "include_log_monitor": False,
        "session_name": "s",
        "dashboard_agent_listen_port": 0,  # any: with `ray[default]` two searches would ask for the same port
    }
    with (
        patched("fewer_processes", lambda init: partialmethod(init, **less)),
        patched("short_way", lambda init: partialmethod(init, setup_worker_path=begin.__file__)),
        patched("no_dashboard", lambda _: _without_dashboard),
        patched("own_sessions", lambda popen: _apart(popen, workers, note)),
        signals_left_alone(),
    ):
        yield


def _without_dashboard(node: Any, **_: Any) -> None:
    node._webui_url = ""


def _apart(popen: Any, workers: Workers, note: Callable[[Process], None]) -> type[Process]:
    """The function by which Ray starts its processes: each in its own session, out of reach of our signals."""

    class Apart(popen):  # type: ignore[misc]
        def __init__(self, command: list[str], *, env: dict[str, str], **options: Any) -> None:
            env = {**env, "RAY_gcs_server_request_timeout_seconds": "60"}
            if Path(command[0]).name == "raylet":  # what the user set in the environment stays
                command, env = workers.raylet_command(command), {**workers.environment(), **env}
            super().__init__(command, env=env, start_new_session=True, **options)
            note(self)

    return Apart


def signals_left_alone() -> AbstractContextManager[None]:
    """Within the block Ray doesn't handle SIGTERM."""
    return patched("sigterm_left_alone", lambda _: lambda handler: None)


def raylet_silenced() -> AbstractContextManager[None]:
    """Within the block the raylet's messages don't reach our terminal: no setting turns them off."""
    return patched("silent_raylet", lambda _: lambda *_, **__: None)


@contextmanager
def only_reachable_here() -> Iterator[None]:
    """Within the block a Ray that starts listens on loopback only, and has a token, which isn't stored in a file.

    Ray reads the token, and that it is required, once per process: on a Ray without the names all have the same token.
    """
    on_loopback = patched("loopback_only", lambda _: lambda *_, **__: LOOPBACK)
    if not present("new_token"):
        with on_loopback, environment({"RAY_AUTH_TOKEN": _TOKEN}):
            yield
        return
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    try:
        with on_loopback, environment({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}):
            Config.initialize("")
            AuthenticationTokenLoader.instance().reset_cache()
            yield
    finally:
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()


def gone() -> Callable[[], bool]:
    """The check whether the connected Ray is gone, to be called again and again."""
    if not present("ray_watched"):
        return lambda: False
    from ray._private.worker import global_worker

    return Listening(global_worker.node.gcs_address, global_worker.node.raylet_socket_name).is_gone
