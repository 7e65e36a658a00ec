"""Processes that are started for an answer: how they are started, answer, and end with the process that waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

from tuner.errors import one_line


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
