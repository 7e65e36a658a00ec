"""Processes that train a trial together: starts them, gets the result of each epoch, and ends all of them.

Each is `python -m tuner.train.parallel.rank`, with a connection to the process that started it. All do the same at the
same time, so every message goes to all, and the first one answers. If one fails or dies, the others would wait for it
forever, so all are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tuner.errors import TrialError, TrialOutOfMemory
from tuner.machine.hardware import python_environment
from tuner.machine.temporary import OwnedFolder

LOST = "lost"
SHOW_STACKS = signal.SIGURG  # ignored until a handler is set
# glibc's malloc would return freed tensors to the kernel and request them again, page by page, in every step: with the
# gradients of DistributedDataParallel in between that costs two processes a tenth of their time
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
SECONDS_FOR_THE_FIRST = 5.0  # that a process that failed because of another one waits for that one's report


@dataclass(frozen=True)
class Task:
    """What the processes train.

    Attributes:
        pickled: the trial's declaration and hyperparameters
        import_path: folders that its modules are imported from
        epochs: length of the trial
        seed: of the trial
        split_seed: of the study
        threads: of each process
        strategy: name of a strategy with a process for each device; None for a single process
        halvings: how often memory ran out
        first_pass_fits: whether memory was enough for a pass over a whole batch without gradient, as far as is known
        checkpoints: folders from which to go on, the newest first; damaged ones are skipped
    """

    pickled: bytes
    import_path: tuple[str, ...]
    epochs: int
    seed: int
    split_seed: int
    threads: int
    strategy: str | None = "ddp"
    halvings: int = 0
    first_pass_fits: bool = True
    checkpoints: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An exception of a process, sent to the process that started it.

    Attributes:
        cause: from `describe_failure`, like the next two
        message: one line
        traceback: of that process
        left_alone: whether the earlier failure of another process caused it
        remedy: what all processes could try if memory ran out, see `tuner.train.step`; None for nothing
    """

    cause: str
    message: str
    traceback: str
    left_alone: bool = False
    remedy: str | None = None


@dataclass(frozen=True)
class Epoch:
    """A finished epoch, and what the user should know of the trial since the last one."""

    epoch: int
    metrics: dict[str, float | str]
    notes: tuple[str, ...]


class RankLost(Exception):  # noqa: N818 -- what happened
    """A process died silently, for instance because it was killed."""


class RankFailed(TrialError):  # noqa: N818
    """A process raised an exception, with this `cause`."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Place(ABC):
    """Where a process of a trial runs."""

    @abstractmethod
    def start(self) -> None:
        """Start the process, without waiting for it."""

    @abstractmethod
    def connected(self) -> tuple[Connection[Any, Any], str]:
        """The connection to the process, and its device's name as it sees it.

        Raises:
            RankLost: it couldn't be started.
        """

    @abstractmethod
    def kill(self) -> None:
        """End the process now, whatever it does; does nothing if it never started."""

    @abstractmethod
    def show_stacks(self) -> None:
        """Let the process print what its threads do; does nothing if it never started."""

    @abstractmethod
    def ending(self) -> str:
        """How the process ended, such as "was killed by signal 9"."""


class Here(Place):
    """A place on this machine: a device that this process sees, "cpu" or "cuda:1".

    It prints into the file descriptor `output`, or to where this process does.
    """

    def __init__(self, device: str, output: int | None = None) -> None:
        self._device, self._output = device, output
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """See `Place.start`."""
        self._connection, theirs = Pipe()
        self._own, environment = _seeing_only(self._device, self.environment())
        command = rank_command(str(theirs.fileno()))
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdout=self._output, stderr=self._output
        )
        theirs.close()

    def connected(self) -> tuple[Connection[Any, Any], str]:
        """See `Place.connected`."""
        return self._connection, self._own

    def environment(self) -> dict[str, str]:
        """The process's environment, before its device is made the only visible one."""
        return rank_environment()

    def kill(self) -> None:
        """See `Place.kill`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def show_stacks(self) -> None:
        """See `Place.show_stacks`."""
        if self.process is not None:
            self.process.send_signal(SHOW_STACKS)

    def ending(self) -> str:
        """See `Place.ending`."""
        return "was never started" if self.process is None else ending_of(self.process)


class Ranks:
    """The processes of a trial, for the length of a `with` block."""

    def __init__(self, task: Task, places: Sequence[Place], meeting: str | None = None) -> None:
        """Start one process in each of the places.

        Args:
            task: what they train
            places: the first one is on this machine
            meeting: where they meet: "HOST:PORT" of a store; None for a file, if all are on this machine

        Raises:
            RankLost: one can't be started.
        """
        self.places = tuple(places)
        self._folder = OwnedFolder("ranks")
        self._connections: list[Connection[Any, Any]] = []
        meeting = meeting or str(self._folder.path / "meeting")
        try:
            devices = []
            for place in self.places:
                place.start()
            for place in self.places:
                connection, device = place.connected()
                self._connections.append(connection)
                devices.append(device)
            for rank, (connection, device) in enumerate(zip(self._connections, devices, strict=True)):
                with suppress(OSError):  # it died; this is noticed when its first answer is read
                    connection.send((task, rank, len(self.places), meeting, device))
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def next_epoch(self) -> Epoch:
        """Let all train an epoch, and wait for it.

        Raises:
            RankLost: a process died.
            TrialOutOfMemory: memory ran out in one.
            RankFailed: one raised another exception.
        """
        told: Epoch = self._all("epoch")
        return told

    def save(self, folder: Path) -> None:
        """Write a checkpoint; raises as `next_epoch` does."""
        self._all(str(folder))

    def show_stacks(self) -> None:
        """Let all processes print what their threads do."""
        for place in self.places:
            place.show_stacks()

    def kill(self) -> None:
        """End all processes now, whatever they do."""
        for place in self.places:
            place.kill()
        for connection in self._connections:
            connection.close()
        self._folder.delete()

    def _all(self, order: str) -> Any:
        """Send a message to all, and wait for all; returns the answer of the first one."""
        for connection in self._connections:
            with suppress(OSError):  # it died; this is noticed below
                connection.send(order)
        answers: dict[int, Any] = {}
        failure: tuple[int, Failure] | None = None
        while len(answers) < len(self._connections):
            waiting = {connection: rank for rank, connection in enumerate(self._connections) if rank not in answers}
            ready = wait(list(waiting), None if failure is None else SECONDS_FOR_THE_FIRST)
            for rank in (rank for connection, rank in waiting.items() if connection in ready):
                answers[rank] = answer = self._answer(rank)
                if isinstance(answer, Failure) and (failure is None or failure[1].left_alone):
                    failure = rank, answer
            if failure is not None and (not failure[1].left_alone or not ready):
                break
        if failure is not None:
            self._raise(*failure)
        return answers[0]

    def _answer(self, rank: int) -> Any:
        try:
            return self._connections[rank].recv()
        except (EOFError, OSError):
            return Failure(LOST, self.places[rank].ending(), "")

    def _raise(self, rank: int, failure: Failure) -> NoReturn:
        message = f"process {rank} of {len(self.places)}"
        if failure.cause == LOST:
            raise RankLost(f"{message} {failure.message}")
        message = f"{message}: {failure.message}"
        elsewhere = RuntimeError("in that process:\n" + failure.traceback)  # for the trial's traceback
        if failure.cause == TrialOutOfMemory.cause:
            raise TrialOutOfMemory(message, failure.remedy) from elsewhere
        raise RankFailed(message, failure.cause) from elsewhere


def rank_command(connection: str) -> list[str]:
    """The command of a process that this one starts, and that ends with this one.

    Args:
        connection: number of an inherited file descriptor, or HOST:PORT, whose key is sent to its standard input
    """
    return [sys.executable, "-m", "tuner.train.parallel.rank", connection, str(os.getpid())]


def rank_environment() -> dict[str, str]:
    """The environment of a process."""
    return {**KEPT_MEMORY, **python_environment()}


def ending_of(process: subprocess.Popen[bytes]) -> str:
    """How a process ended; waits for that."""
    code = process.wait()
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _seeing_only(device: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The device's name if no other is visible, and the environment that makes it so."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return device, dict(environment)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    own = visible.split(",")[int(index)] if visible else index
    return "cuda", {**environment, "CUDA_VISIBLE_DEVICES": own}
