"""Spot storms: a driver that is told to end again and again, or nodes that are drained one after another.

Every epoch must be trained once, and the search must come at least SHARE as far as one that nobody disturbs.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter

from benchmarks.fault_attempts import Attempt, send
from benchmarks.fault_nodes import cluster, drain_one
from tuner import load_run

DRIVER_SECONDS, NODE_SECONDS = 90.0, 60.0  # between two signals, and two drained nodes
UNDISTURBED_SECONDS = 120.0  # after which the pace of an undisturbed search is known
SHARE = 0.7
LONG = """
import tempfile
import time
from pathlib import Path

import tuner
from tuner import *


def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 41):
        time.sleep(1)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=(config["x"] - 3) ** 2 + 1 / epoch, checkpoint=folder)


study = Study(
    "faults", trial=train, space={"x": randint(0, 1_000_000)}, metric="loss", mode="min", search=Random(),
    scheduler=NoEarlyStopping(), budget=Budget(trials=10_000, max_epochs=40), resources=Resources(cpus=1),
    warm_start=None,
)
"""


def driver_told_to_end(attempt: Attempt) -> None:
    """SIGTERM every 90 s; `resume` goes on at once."""
    expected = _undisturbed(attempt)
    begun, process = time.monotonic(), attempt.run()
    for seconds in _moments(attempt.seconds_of_storm, DRIVER_SECONDS):
        _wait_until(begun + seconds, attempt, process)
        _end(attempt, process)
        process = attempt.start("resume", str(attempt.storage), "--quiet", "--wandb", "off")
    _wait_until(begun + attempt.seconds_of_storm, attempt, process)
    _end(attempt, process)
    _judge(attempt, expected)


def nodes_drained(attempt: Attempt) -> None:
    """One of three nodes is drained every 60 s, and another one comes in its place."""
    with cluster(attempt, 3) as nodes:
        expected = _undisturbed(attempt)
        begun, process = time.monotonic(), attempt.run()
        for seconds in _moments(attempt.seconds_of_storm, NODE_SECONDS):
            _wait_until(begun + seconds, attempt, process)
            drain_one(attempt, nodes, process)
            nodes.add()
        _wait_until(begun + attempt.seconds_of_storm, attempt, process)
        _end(attempt, process)
    _judge(attempt, expected)


def _moments(seconds: float, apart: float) -> list[float]:
    """When something happens in so many seconds."""
    return [apart * number for number in range(1, int(seconds / apart) + 1) if apart * number < seconds - 10]


def _wait_until(moment: float, attempt: Attempt, process: subprocess.Popen[str]) -> None:
    attempt.until(lambda: False, process, moment - time.monotonic())


def _end(attempt: Attempt, process: subprocess.Popen[str]) -> None:
    send(process.pid, signal.SIGTERM)
    attempt.wait(process, "the search that was told to end", 60)


def _undisturbed(attempt: Attempt) -> float:
    """Epochs that the search would come to without the storm, by its pace after it has started."""
    alone = attempt.beside("undisturbed")
    seconds, begun, process = min(attempt.seconds_of_storm, UNDISTURBED_SECONDS), time.monotonic(), alone.run()
    alone.until(lambda: alone.count("epoch_reported") > 0, process)
    started = time.monotonic() - begun
    _wait_until(begun + seconds, alone, process)
    epochs = alone.count("epoch_reported")
    _end(alone, process)
    return epochs / (seconds - started) * (attempt.seconds_of_storm - started)


def _judge(attempt: Attempt, expected: float) -> None:
    """Every epoch is there once, and enough of them are."""
    run = load_run(attempt.storage)
    reported = Counter((event["trial"], event["epoch"]) for event in run.events if event["event"] == "epoch_reported")
    share = len(reported) / expected
    attempt.lost += [
        f"epoch {epoch} of {trial} {count} times" for (trial, epoch), count in reported.items() if count > 1
    ]
    attempt.lost += [] if share >= SHARE else [f"{share:.0%} of an undisturbed search's epochs"]
    for trial in run.record.trials.values():
        attempt.lost += [] if len(trial.epochs) == trial.epoch else [f"{trial.trial} has epochs {sorted(trial.epochs)}"]
    attempt.figures = f"{len(reported)} epochs of {expected:.0f}, {share:.0%}"
