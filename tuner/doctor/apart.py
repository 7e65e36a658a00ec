"""A function called in its own process, so that a crash or a hang there only ends that process and is reported."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from tuner.child_process import ending, last_line
from tuner.errors import describe_error


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
