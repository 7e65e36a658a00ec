"""Processes of a trial that each run in their own bundle, on any nodes of the cluster.

An actor in each bundle starts the process, which connects back to the trial's worker; it is killed with the actor.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tuner.train.parallel.launching import SHOW_STACKS, Here, Place, RankLost, ending_of, rank_command, rank_environment
from tuner.worker.far_output import FarOutput

SECONDS_TO_CONNECT = 120.0  # from the actor's start: Ray has to find a worker, which imports torch
SECONDS_TO_AUTHENTICATE = 10
KEPT_ALIVE = {  # after 10 s of silence up to 3 probes, 1 s apart; without an answer the connection ends
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 10,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
}


def in_bundles(
    count: int, *, cpus: float, gpus: bool, pipes: Sequence[int | None]
) -> tuple[list[Place], TCPStore, str]:
    """A place in each bundle of this trial, the first one on this machine; the store where they meet, and its address.

    What each process prints goes into its pipe of `pipes`; None: to where its worker prints.
    """
    host = own_address()
    listening = socket.create_server((host, 0))  # otherwise the store would listen on every interface
    port = listening.getsockname()[1]
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    others = [Bundle(index, cpus=cpus, gpus=1 if gpus else 0, output=pipes[index]) for index in range(1, count)]
    return [First("cuda:0" if gpus else "cpu", pipes[0]), *others], store, f"{host}:{store.port}"


class First(Here):
    """The process in the worker's own bundle, which talks to the others by the worker's network interface."""

    def environment(self) -> dict[str, str]:
        """See `Here.environment`."""
        return super().environment() | _interface()


class Bundle(Place):
    """The bundle number `index` of the current placement group; `cpus` and `gpus` are what it holds.

    What the process prints goes into the file descriptor `output` of this machine.
    """

    def __init__(self, index: int, *, cpus: float, gpus: float, output: int | None = None) -> None:
        self._index, self._key = index, secrets.token_bytes(32)
        self._pipe = output
        self._output: FarOutput | None = None
        strategy = PlacementGroupSchedulingStrategy(get_current_placement_group(), placement_group_bundle_index=index)
        self._actor: Any = (
            ray.remote(Starter).options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=strategy).remote()
        )
        self._device = "cuda" if gpus else "cpu"

    def start(self) -> None:
        """See `Place.start`; a port is taken until the process has connected."""
        host = own_address()
        self._server = socket.create_server((host, 0))
        self._started = self._actor.start.remote(*self._address(host))

    def _address(self, host: str) -> tuple[str, int, bytes, tuple[int, bytes] | None]:
        """Where on this host the process finds its worker, and where it prints to."""
        if self._pipe is not None:
            self._output = FarOutput(host, self._pipe, _known, SECONDS_TO_CONNECT)
        printed = None if self._output is None else (self._output.port, self._output.key)
        return host, self._server.getsockname()[1], self._key, printed

    def connected(self) -> tuple[Connection[Any, Any], str]:
        """See `Place.connected`."""
        with self._server as server:
            try:
                return self._accepted(server), self._device
            except (RayError, TimeoutError) as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise RankLost(f"process {self._index} could not be started: {reason}") from error

    def _accepted(self, server: socket.socket) -> Connection[Any, Any]:
        """The connection of the process, unless it ends before it has connected; unknown clients are refused."""
        ray.get(self._started, timeout=SECONDS_TO_CONNECT)
        server.settimeout(1)
        until = time.monotonic() + SECONDS_TO_CONNECT
        while time.monotonic() < until:
            with suppress(TimeoutError, EOFError, AuthenticationError, OSError):
                return _known(server.accept()[0], self._key)
            if ray.get(self._actor.ended.remote(), timeout=SECONDS_TO_CONNECT):
                raise RankLost(f"process {self._index} {self.ending()} before it began; see the worker's log")
        raise TimeoutError(f"it didn't connect within {SECONDS_TO_CONNECT:.0f} s")

    def kill(self) -> None:
        """See `Place.kill`: the kernel kills the process with the actor that started it."""
        with suppress(RayError):
            ray.kill(self._actor)
        if self._output is not None:
            self._output.close()

    def show_stacks(self) -> None:
        """See `Place.show_stacks`."""
        with suppress(RayError):
            self._actor.show_stacks.remote()

    def ending(self) -> str:
        """See `Place.ending`."""
        with suppress(RayError):
            return str(ray.get(self._actor.ending.remote(), timeout=5))
        return "was lost with its node"


def _known(taken: socket.socket, key: bytes) -> Connection[Any, Any]:
    """A connection to a client that knows the key.

    Raises:
        AuthenticationError, EOFError, OSError: it doesn't know the key, or sends nothing.
    """
    taken.setblocking(True)
    _limit_waiting(taken, SECONDS_TO_AUTHENTICATE)
    for option, value in KEPT_ALIVE.items():  # a node that loses power doesn't close its connection
        taken.setsockopt(*option, value)
    connection: Connection[Any, Any] = Connection(taken.detach())
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            _limit_waiting(same, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def _limit_waiting(taken: socket.socket, seconds: int) -> None:
    """Let reading from the connection fail after so many seconds; 0 for never."""
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


class Starter:
    """An actor that starts a process on its own node."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, host: str, port: int, key: bytes, printed: tuple[int, bytes] | None = None) -> None:
        """Start a process that connects to the address; `printed` is the port of the host for its output, with its key.

        The output goes to where this process prints if that port can't be reached.
        """
        environment = rank_environment() | _interface()
        with _printing_to(host, printed) as output:
            self._process = subprocess.Popen(
                rank_command(f"{host}:{port}"), env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output
            )
        assert self._process.stdin is not None
        self._process.stdin.write(key)
        self._process.stdin.close()

    def show_stacks(self) -> None:
        """Let the process print what its threads do."""
        if self._process is not None:
            self._process.send_signal(SHOW_STACKS)

    def ended(self) -> bool:
        """Whether the process is over."""
        return self._process is not None and self._process.poll() is not None

    def ending(self) -> str:
        """How the process ended."""
        return "was never started" if self._process is None else ending_of(self._process)


@contextmanager
def _printing_to(host: str, printed: tuple[int, bytes] | None) -> Iterator[int | None]:
    """A connection as a file descriptor that a process may print into; None without one."""
    try:
        connection = None if printed is None else Client((host, printed[0]), authkey=printed[1])
    except (OSError, EOFError, AuthenticationError):  # a trial is worth more than its log
        connection = None
    if connection is None:
        yield None
        return
    with connection:
        yield connection.fileno()


def own_address() -> str:
    """The address by which the other nodes of the cluster reach this one."""
    return str(ray.util.get_node_ip_address())


def _interface() -> dict[str, str]:
    """Environment variables that name, for gloo and NCCL, the network interface to the other nodes."""
    name = interface_of(own_address())
    return {} if name is None else {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}  # not a prefix


def interface_of(address: str) -> str | None:
    """The network interface that has the IPv4 address; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(one, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR of Linux
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
