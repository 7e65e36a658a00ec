"""Faults of the nodes of a cluster that a search has joined: they are killed, or drained and then killed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.fault_attempts import ON_LOOPBACK, ROOT, Attempt, descendants, kill
from tuner import load_run

SECONDS_TO_LEAVE = 30.0


@dataclass(frozen=True)
class Nodes:
    """A cluster with a CPU on each node."""

    process: subprocess.Popen[str]

    def further(self) -> list[tuple[int, str]]:
        """Process and id of all nodes but the head."""
        raylets = sorted((pid, text) for pid, text in descendants(self.process.pid).items() if "raylet/raylet" in text)
        return [(pid, re.findall(r"--node_id=(\w+)", text)[0]) for pid, text in raylets if " --head " not in f"{text} "]

    def add(self) -> None:
        """One more node comes."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)


@contextmanager
def cluster(attempt: Attempt, count: int) -> Iterator[Nodes]:
    """A cluster of so many nodes that the attempt joins."""
    nodes = subprocess.Popen(
        [sys.executable, "-m", "tests.two_nodes", str(count)],
        cwd=ROOT,
        env={**attempt.environment, **ON_LOOPBACK},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    assert nodes.stdout is not None
    attempt.address = nodes.stdout.readline().strip()
    try:
        yield Nodes(nodes)
    finally:
        attempt.address = None
        kill(nodes.pid)
        nodes.communicate()


def killed(count: int) -> Callable[[Attempt], None]:
    """One of the nodes dies with its workers: kill -9 of all its processes; the search goes on with the others."""

    def fault(attempt: Attempt) -> None:
        with cluster(attempt, count) as nodes:
            process = attempt.run()
            attempt.random_moment(process)
            found = nodes.further()
            attempt.hit = len(found) == count - 1 and process.poll() is None
            kill(attempt.draw.choice(found)[0])
            if attempt.wait(process, "the search of which a node was killed"):
                attempt.lost.append("the search ended with its node")

    return fault


def drained(attempt: Attempt) -> None:
    """One of three nodes is drained, and killed once its trial has left: no epoch of it is trained again."""
    space = attempt.folder / "space.py"
    space.write_text(space.read_text().replace("time.sleep(0.05)", "time.sleep(0.4)"))
    with cluster(attempt, 3) as nodes:
        process = attempt.run()
        attempt.random_moment(process)
        drain_one(attempt, nodes, process)
        attempt.wait(process, "the search of which a node was drained")
    attempt.hit = attempt.count("trial_lost") > 0
    attempt.lost += _trained_again(attempt)


def drain_one(attempt: Attempt, nodes: Nodes, process: subprocess.Popen[str]) -> None:
    """Drain a node of the search, and kill it once its trial has left."""
    raylet, name = attempt.draw.choice(nodes.further())
    lost = attempt.count("trial_lost")
    assert attempt.address is not None
    drain = [sys.executable, "-m", "tests.drain", attempt.address, name]
    subprocess.run(drain, cwd=ROOT, check=True, env=attempt.environment)
    attempt.until(lambda: attempt.count("trial_lost") > lost, process, SECONDS_TO_LEAVE)
    kill(raylet)


def _trained_again(attempt: Attempt) -> Iterator[str]:
    """Trials that left a drained node and didn't go on from the epoch that they had come to."""
    left: dict[str, int] = {}
    epochs: dict[str, int] = {}
    for event in load_run(attempt.storage).events if attempt.count("study_started") else ():
        trial, kind = event.get("trial", ""), event["event"]
        if kind == "epoch_reported":
            epochs[trial] = event["epoch"]
        elif kind == "trial_lost" and event["cause"] == "drained":
            left[trial] = epochs[trial]
        elif kind == "trial_lost":
            yield f"{trial} was lost ({event['message']}) rather than saved"
        elif kind in ("trial_started", "trial_resumed") and trial in left:
            epoch = left.pop(trial)
            if event["from_epoch"] != epoch:
                yield f"{trial} left a drained node after epoch {epoch} and went on from {event['from_epoch']}"
