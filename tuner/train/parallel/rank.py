"""One of the processes of `Ranks`: trains on command, and ends with the process that started it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import signal
import sys
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import torch

from tuner.errors import describe_failure
from tuner.machine.hardware import NO_GPUS
from tuner.train import Trainer
from tuner.train.checkpoint import load_first_whole, write_checkpoint
from tuner.train.memory import is_out_of_memory
from tuner.train.parallel.group import joined
from tuner.train.parallel.launching import SHOW_STACKS, Epoch, Failure, Task
from tuner.train.parallel.strategy import Strategy
from tuner.train.step import SMALLER
from tuner.trial import STRATEGIES

SIGNS_OF_BEING_LEFT = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL", "gloo")
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main(connection: Connection[Any, Any]) -> None:
    """Train what the first message says, an epoch for each "epoch", a checkpoint for each path."""
    task, rank, size, meeting, device = connection.recv()
    trainer = None
    try:
        if device == "cpu":
            os.environ.update(NO_GPUS)
        torch.set_num_threads(task.threads)
        sys.path.extend(folder for folder in task.import_path if folder not in sys.path)
        with joined(rank, size, meeting, device) as group:
            trainer = Trainer(
                *pickle.loads(task.pickled),
                epochs=task.epochs,
                seed=task.seed,
                split_seed=task.split_seed,
                device=device,
                strategy=(Strategy if task.strategy is None else STRATEGIES[task.strategy].load())(group),
            )
            _serve(trainer, task, connection)
    except Exception as error:
        left_alone = isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS_OF_BEING_LEFT)
        left_alone = left_alone and not is_out_of_memory(error)
        remedy = getattr(error, "remedy", SMALLER if trainer else None)
        connection.send(replace(Failure(*describe_failure(error)), left_alone=left_alone, remedy=remedy))
        os._exit(1)  # a normal exit would first leave the group, which waits for the others


def _serve(trainer: Trainer, task: Task, connection: Connection[Any, Any]) -> None:
    problems = load_first_whole(trainer, task.checkpoints)
    trainer.halve_micro_batch(task.halvings)
    trainer.parts.training_step.first_pass_fits = task.first_pass_fits
    said = 0
    while True:
        try:
            order = connection.recv()
        except EOFError:
            return
        if order == "epoch":
            metrics = trainer.run_epoch().metrics()
            notes = (*problems, *trainer.notes[said:])
            problems, said = [], len(trainer.notes)
            connection.send(Epoch(trainer.epoch, metrics, notes))
        else:
            checkpoint = trainer.snapshot()  # by all processes, because the loss is summed
            if trainer.parts.strategy.group.rank == 0:
                write_checkpoint(Path(order), checkpoint)
            connection.send(None)


def _connected(to: str) -> Connection[Any, Any]:
    """The connection to the process that started this one, by an inherited descriptor or by HOST:PORT."""
    host, _, port = to.rpartition(":")
    return Client((host, int(port)), authkey=sys.stdin.buffer.read()) if host else Connection(int(to))


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the one that started it ends in any way, or has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    _end_with(int(sys.argv[2]))
    for stream in (sys.stdout, sys.stderr):  # each line at once, so that a killed process loses none
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    faulthandler.register(SHOW_STACKS, all_threads=True)  # by a signal handler in C: also if C code hangs
    main(_connected(sys.argv[1]))
