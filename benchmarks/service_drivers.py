"""How a search service handles its drivers: the next server adopts them, and they are paused; a part of
`service.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tuner
from tuner.service.access import Access
from tuner.service.bundles import of_json
from tuner.service.executors import LocalProcesses
from tuner.service.executors.local import OF_SEARCHES
from tuner.service.model import Submission, User
from tuner.service.service import Service

TICKS = os.sysconf("SC_CLK_TCK")
SPACE = {name: {"type": "uniform", "low": 0, "high": 1} for name in ("x", "y", "z")}


def service_of(folder: str) -> tuple[Service, User, str]:
    """A service that only looks, an admin of it, and a token of theirs."""
    service = Service(folder)
    access = Access(service.database)
    chief = access.accept(str(access.first_secret()), "four words are enough", "chief", "here")
    return service, chief, access.create_token(chief, "benchmark")[1]


@contextmanager
def served(folder: str) -> Iterator[tuple[str, int]]:
    """The address and the process of a server, which is killed in the end."""
    command = [sys.executable, "-m", "tuner", "serve", "--storage", folder, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split(" at ")[-1].strip(), process.pid
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Of a process so far; proc(5), fields 14 and 15."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def adopted(kills: int) -> list[tuple[float, float]]:
    """Seconds from the start of the next server, after one was killed, until it follows the search that went on.

    And those of the processor that it has used until then.
    """
    with tempfile.TemporaryDirectory() as folder:
        service, chief, token = service_of(folder)
        declared = {"name": "furnace", "space": SPACE, "metric": "loss", "mode": "min", "warm_start": None}
        study = service.submit(of_json(json.dumps(declared | {"budget": {"trials": 10}}).encode()), chief).id
        found = []
        for number in range(kills + 1):
            begun = time.monotonic()
            with served(folder) as (url, server):
                client = tuner.connect(url, token)
                while client.ask("GET", f"/studies/{study}/row")["progress"] is None:  # which only who follows has
                    time.sleep(0.05)
                found += [(time.monotonic() - begun, cpu_seconds(server))] if number else []
        LocalProcesses(OF_SEARCHES).kill(service.folder.attempt(study, 1))
        service.close()
        return found


def paused(times: int) -> list[tuple[float, float]]:
    """How long a study of images that is paused keeps its devices, with ResNet18 on digits and one CPU.

    Of each pause: seconds until the server has the devices back, and seconds of the processor that the driver, its
    workers and Ray have used until then, as far as they were seen every 20 ms. Each time the search has reported an
    epoch since it went on.
    """
    with tempfile.TemporaryDirectory() as folder:
        service, chief, token = service_of(folder)
        study = service.submit(Submission("space.py", {"space.py": IMAGES}, options={"concurrency": 1}), chief).id
        found = []
        with served(folder) as (url, _):
            client = tuner.connect(url, token)

            def row() -> dict[str, Any]:
                return dict(client.ask("GET", f"/studies/{study}/row"))

            for number in range(times):
                before = (row()["progress"] or {"epochs": 0})["epochs"]
                while (row()["progress"] or {"epochs": 0})["epochs"] <= before:
                    time.sleep(0.2)
                attempt = service.folder.attempt(study, service.study(study).attempt)
                watch = _Watch(json.loads((attempt / "process.json").read_text())["pid"])
                begun = time.monotonic()
                client.ask("POST", f"/studies/{study}:pause")
                while service.study(study).devices:
                    watch.look()
                    time.sleep(0.02)
                found.append((time.monotonic() - begun, watch.used()))
                if number + 1 < times:
                    client.ask("POST", f"/studies/{study}:resume")
        service.close()
        return found


IMAGES = b"""\
from tuner import Budget, ImageClassifier, Study, loguniform

study = Study(
    name="digits", trial=ImageClassifier(data="digits", model="resnet18", weights=None), metric="val_accuracy",
    space={"lr": loguniform(1e-4, 1e-1)}, budget=Budget(trials=1000, max_epochs=9),
)
"""


class _Watch:
    """The seconds of the processor that a process and all below it use from now on, as seen by `look`."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self.look(begin=True)

    def look(self, *, begin: bool = False) -> None:
        """Note what each has used until now."""
        parents: dict[int, int] = {}
        used: dict[int, float] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, IndexError, ValueError):  # it has ended
                fields = path.read_text(errors="replace").rpartition(")")[2].split()
                pid = int(path.parent.name)
                parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
        below = {self._leader} | self._last.keys()
        while more := {pid for pid, parent in parents.items() if parent in below} - below:
            below |= more
        for pid in below & used.keys():
            self._first.setdefault(pid, used[pid] if begin else 0.0)
            self._last[pid] = used[pid]

    def used(self) -> float:
        """Since it began, all together."""
        return sum(last - self._first[pid] for pid, last in self._last.items())


def of_pauses(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Rows on how soon a paused study gives its devices back."""
    times, cpu = zip(*paused(options.pauses), strict=True)
    told = ", ".join(f"{seconds:.1f}" for seconds in times)
    return [
        (f"pause until the devices are free, {len(times)} times", f"{told} s", "15 s"),
        ("CPU of driver, worker and Ray until then, median", f"{statistics.median(cpu):.1f} s", "none"),
    ]


def of_adoption(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Rows on the server after one that was killed."""
    times, cpu = zip(*adopted(10), strict=True)
    return [
        ("adopted after kill -9: median, longest", f"{statistics.median(times):.2f}, {max(times):.2f} s", "3 s"),
        ("CPU of the server until then", f"{statistics.median(cpu):.2f} s", "none"),
    ]
