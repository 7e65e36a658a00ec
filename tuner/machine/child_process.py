"""Processes that are started for an answer: how they are started, answer, and end with the process that waits.

So a crash or a hang there only ends that process, and is reported.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import IO, Any

from tuner.errors import describe_error, one_line


def started(module: str, **options: Any) -> tuple[subprocess.Popen[bytes], int]:
    """Start `python -m module DESCRIPTOR` with these options of Popen; returns it, and a descriptor with its answers.

    It reads its task from standard input, which stays open: when that closes, it knows that nobody waits any more.
    """
    reader, writer = os.pipe()
    try:
        command = [sys.executable, "-m", module, str(writer)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(writer,), **options), reader
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)


@contextmanager
def answering(descriptor: int) -> Iterator[Callable[..., None]]:
    """Within the block, in the process itself: a function that writes its keywords as an answer, a line of JSON."""
    with open(descriptor, "w", encoding="utf-8") as answers:

        def tell(**message: Any) -> None:
            answers.write(json.dumps(message) + "\n")
            answers.flush()

        yield tell


def end_with_the_input(end: Callable[[], object] | None = None) -> None:
    """End this process, at once or by `end`, when standard input ends: then nobody waits for its answer any more."""
    threading.Thread(target=_wait, args=(end or partial(os._exit, 1),), daemon=True).start()


def _wait(end: Callable[[], object]) -> None:
    """Reads without Python's buffer, which is locked meanwhile."""
    while os.read(sys.stdin.fileno(), 1000):
        pass
    end()


def ending(code: int | None) -> str:
    """How a process ended, from its exit code."""
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def last_line(said: IO[bytes]) -> str:
    """The last line of what a process wrote into a file, after a colon; nothing if it wrote nothing."""
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    return f": {one_line(lines[-1])}" if lines else ""


class CrashedError(Exception):
    """The process ended without an answer; the message says how."""


def call_apart(function: Callable[[], Any], seconds: float) -> Any:
    """The function's result in a forked process; everything that the process started ends with it.

    Raises CrashedError if it dies, takes longer than `seconds`, or the function raises.
    """
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    with tempfile.TemporaryFile() as said:
        process = fork.Process(target=_answer, args=(function, sender, said.fileno()))
        process.start()
        sender.close()
        try:
            answered = receiver.poll(seconds)
            kind, answer = receiver.recv() if answered else ("crash", f"it gave no answer within {seconds:.0f} s")
        except EOFError:
            process.join()
            kind, answer = "crash", f"its process {ending(process.exitcode)}{last_line(said)}"
        finally:
            _end(process)
    if kind == "crash":
        raise CrashedError(answer)
    return answer


def _answer(function: Callable[[], Any], sender: Connection, said: int) -> None:
    os.setpgrp()
    os.dup2(said, 1)
    os.dup2(said, 2)
    try:
        answer = "answer", function()
    except Exception as error:
        answer = "crash", describe_error(error)
    sender.send(answer)


def _end(process: Any) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # what the function started and left running
    process.kill()
    process.join()
