"""Processes that have torch from the start: one process imports it, and the others are copies of that one."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

from torch.multiprocessing.spawn import start_processes

from tests.commands import Finished

SECONDS = 300.0  # until a copy is killed
_LOADED = ["tuner.train"]  # which loads torch and torchvision, and not the compiler


def copies() -> ForkServerContext:
    """Starts such processes; this one may have trained, and a copy of it couldn't."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


def start_ranks(run: Callable[[int, int, str], None], size: int, folder: str) -> None:
    """Run `run(rank, size, folder)` in a process for each rank, and wait; raises what one of them raises."""
    copies()
    start_processes(run, args=(size, folder), nprocs=size, start_method="forkserver")


def run_copy(program: str, *arguments: str) -> Finished:
    """Run the text of a program, which finds its arguments in `sys.argv[1:]`."""
    with tempfile.TemporaryDirectory() as folder:
        process = copies().Process(target=_execute, args=(program, arguments, folder))
        process.start()
        process.join(SECONDS)
        process.kill()  # if it still runs
        process.join()
        out, err = ((Path(folder) / name).read_text() for name in ("out", "err"))
    assert process.exitcode is not None
    return Finished(process.exitcode, out, err)


def _execute(program: str, arguments: tuple[str, ...], folder: str) -> None:
    for number, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT), number)
    sys.argv[1:] = arguments
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
