"""Processes of one machine that train a trial together: starting them, hearing of each epoch, ending all of them.

Each is `python -m tuner.train.parallel.rank`, with a connection to the one that started it. They do the same at the
same time, so what is told to one is told to all, and the first one answers for all. When one fails or dies the others
wait for it in vain: all are killed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tuner.errors import TrialError, TrialOutOfMemory
from tuner.machine import python_environment

LOST = "lost"
# glibc's malloc, which else gives freed tensors back to the kernel and takes them again, page by page, in every step:
# with the gradients of DistributedDataParallel in between that costs two processes a tenth of their time
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
SECONDS_FOR_THE_FIRST = 5.0  # that a process which was left alone waits for the one that failed before it


@dataclass(frozen=True)
class Task:
    """What the processes are to train.

    Attributes:
        pickled: the trial's declaration
        import_path: folders that its modules are imported from
        config: hyperparameters
        epochs: length of the trial
        seed: of the trial
        split_seed: of the study
        threads: of each process
        strategy: "ddp", "pipeline", or "none" for one process alone
        halvings: how often memory ran out
        checkpoints: folders to go on from, the newest first; one that is damaged is passed over
    """

    pickled: bytes
    import_path: tuple[str, ...]
    config: dict[str, Any]
    epochs: int
    seed: int
    split_seed: int
    threads: int
    strategy: str = "ddp"
    halvings: int = 0
    checkpoints: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An exception of a process, for the one that started it."""

    cause: str
    message: str
    traceback: str
    left_alone: bool = False  # whether it comes of another process that failed before


@dataclass(frozen=True)
class Epoch:
    """A finished epoch, and what the user should know of the trial since the last one."""

    epoch: int
    metrics: dict[str, float | str]
    notes: tuple[str, ...]


class RankLost(Exception):  # noqa: N818 -- what happened
    """A process died without a word, as when it is killed."""


class RankFailed(TrialError):  # noqa: N818
    """A process raised an exception; `cause` is its."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Ranks:
    """The processes of a trial, from `with` to its end."""

    def __init__(self, task: Task, devices: Sequence[str]) -> None:
        """Start one process for each of the devices ("cpu", or "cuda:1" among those that this process sees)."""
        self._folder = Path(tempfile.mkdtemp(prefix="tuner-ranks-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection[Any, Any]] = []
        try:
            own = [self._start(device) for device in devices]
            for rank, (connection, device) in enumerate(zip(self._connections, own, strict=True)):
                with suppress(OSError):  # it died, which is found out with its first answer
                    connection.send((task, rank, len(devices), str(self._folder / "meeting"), device))
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

    def kill(self) -> None:
        """End all processes now, whatever they do."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        for connection in self._connections:
            connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, device: str) -> str:
        """Start a process; its device's name as it sees it."""
        ours, theirs = Pipe()
        self._connections.append(ours)
        own, environment = _seeing_only(device, {**KEPT_MEMORY, **python_environment()})
        command = [sys.executable, "-m", "tuner.train.parallel.rank", str(theirs.fileno())]
        self._processes.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment))
        theirs.close()
        return own

    def _all(self, order: str) -> Any:
        """Tell all, and hear from all; what the first one answers."""
        for connection in self._connections:
            with suppress(OSError):  # it died, which is found out below
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
            code = self._processes[rank].wait()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return Failure(LOST, how, "")

    def _raise(self, rank: int, failure: Failure) -> NoReturn:
        message = f"process {rank} of {len(self._processes)}"
        if failure.cause == LOST:
            raise RankLost(f"{message} {failure.message}")
        message = f"{message}: {failure.message}"
        elsewhere = RuntimeError("in that process:\n" + failure.traceback)  # for the trial's traceback
        if failure.cause == TrialOutOfMemory.cause:
            raise TrialOutOfMemory(message) from elsewhere
        raise RankFailed(message, failure.cause) from elsewhere


def _seeing_only(device: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The device's name where no other can be seen, and the environment in which that is so."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return device, dict(environment)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    own = visible.split(",")[int(index)] if visible else index
    return "cuda", {**environment, "CUDA_VISIBLE_DEVICES": own}
