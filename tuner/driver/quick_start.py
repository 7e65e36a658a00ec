"""Makes Ray start faster: it doesn't wait for what no trial needs, and workers start before they are requested.

Ray on its own starts one thing after another: a dashboard, then a raylet, which waits for two agents, then the driver's
connection, then workers, which import what a trial needs only when they get one. Found in Ray 2.60's source
(`_private/node.py`, `_private/services.py`, `_private/workers/default_worker.py`, `src/ray/raylet/main.cc`).
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray import NodeID
from ray._private.node import Node
from ray._raylet import (  # type: ignore[attr-defined]
    DASHBOARD_AGENT_LISTEN_PORT_NAME,
    METRICS_AGENT_PORT_NAME,
    METRICS_EXPORT_PORT_NAME,
    GcsClient,
    persist_port,
)

from tuner.driver import agent_stand_in
from tuner.driver.patching import changed

NO_PORT = -1  # Ray's value for a service that doesn't exist
POLL_SECONDS = 0.02
IDLE_MILLISECONDS = "30000"  # with Ray's 1,000 a worker may be ended before its first trial gets its CPUs
REGISTERED_SECONDS = 30.0  # that a raylet may take to register with the GCS server, as in Ray itself
METRICS_AGENT, RUNTIME_ENV_AGENT = "--dashboard_agent_command=", "--runtime_env_agent_command="


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


class ReservedPort:
    """A port that no other program can get by chance before it is used; close it at the end.

    It is bound and doesn't listen: with SO_REUSEADDR another socket may bind to it and listen (man page socket(7)).
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, 0))
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def raylet_command(command: Sequence[str], workers: Workers, runtime_env_port: int) -> list[str]:
    """The raylet's command line, with this many workers at its start, and with stand-ins for its two agents."""
    nobody = 0
    changes = {
        "--num_prestart_python_workers=": lambda _: str(workers.count),
        METRICS_AGENT: lambda agent: f"{_stand_in(nobody)} {agent}",
        RUNTIME_ENV_AGENT: lambda agent: f"{_stand_in(runtime_env_port)} {agent}",
    }
    return [_changed_option(part, changes) for part in command]


def _stand_in(port: int) -> str:
    words = [sys.executable, "-I", "-S", agent_stand_in.__file__, str(port)]
    return subprocess.list2cmdline(words)  # as Ray joins those of the agent


def _changed_option(part: str, changes: Mapping[str, Callable[[str], str]]) -> str:
    option = next((option for option in changes if part.startswith(option)), None)
    return part if option is None else option + changes[option](part.removeprefix(option))


def announce_agents(command: Sequence[str], runtime_env_port: int) -> None:
    """Write for the agents what the raylet waits for: that there are no metrics, and the other agent's port."""
    options: Mapping[str, str] = dict(part.split("=", 1) for part in command if part.startswith("--") and "=" in part)
    for name in (METRICS_AGENT_PORT_NAME, METRICS_EXPORT_PORT_NAME, DASHBOARD_AGENT_LISTEN_PORT_NAME):
        persist_port(options["--session_dir"], options["--node_id"], name, NO_PORT)
    persist_port(options["--session_dir"], options["--node_id"], "runtime_env_agent_port", runtime_env_port)


def without_dashboard(node: Node, **_: Any) -> None:
    """Replaces `Node.start_api_server`, whose process would only count usage: its address is empty."""
    node._webui_url = ""


def once_registered(get_node: Callable[[str, str], Any], is_gone: Callable[[], bool]) -> Callable[[str, str], Any]:
    """Replaces `ray._private.services.get_node`, which asks once a second, by a call as soon as there is an answer.

    The function raises ConnectionError if a process of Ray's has ended instead.
    """

    def ask(gcs_address: str, node_id: str) -> Any:
        gcs, until = GcsClient(address=gcs_address), time.monotonic() + REGISTERED_SECONDS
        while NodeID.from_hex(node_id) not in gcs.get_all_node_info(timeout=REGISTERED_SECONDS):
            if is_gone():
                raise ConnectionError("a process of Ray's ended while it started")
            if time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
        return get_node(gcs_address, node_id)

    return ask


@contextmanager
def any_worker_taken() -> Iterator[None]:
    """Within the block Ray Tune's trials run in any worker of a Ray that this process has started.

    Tune would ask for workers with some of the driver's variables added to their environment, and so not for those that
    started with Ray. They have all of the driver's variables anyway, and Tune's own by `Workers.environment`.
    """
    from ray.tune.execution.class_cache import _ActorClassCache

    def get(cache: Any, trainable: type) -> Any:
        if trainable not in cache._cache:
            cache._cache[trainable] = ray.remote(trainable)
        return cache._cache[trainable]

    with changed(_ActorClassCache, "get", get):
        yield
