"""One search with a fault: the study files, the commands, and what was lost in the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.loop.invariants import faults_of_a_run
from tuner import Run, load_run, load_study

ROOT = Path(__file__).parent.parent

LONGEST = 240.0  # seconds that one command may take
MOST_RESUMES = 4
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # there Ray keeps to it, to be spared the firewall's questions

FUNCTION = """
import tempfile
import time
from pathlib import Path

import tuner
from tuner import *


def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 7):
        time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=(config["x"] - 3) ** 2 + 1 / epoch, checkpoint=folder)


study = Study(
    "faults", trial=train, space={{"x": randint(0, 50)}}, metric="loss", mode="min", search={search},
    scheduler={scheduler}, budget=Budget(trials=10, max_epochs=6), resources=Resources(cpus=1), warm_start=None,
)
"""
TINY = """
from tuner import *


def images():
    import torch

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2304) % 4
    images = torch.rand(2304, 1, 8, 8, generator=generator) * 0.9
    images[torch.arange(2304), 0, labels, labels] += 0.6
    return tuple((images[part], labels[part]) for part in (slice(2048), slice(2048, 2176), slice(2176, 2304)))


def network(config):
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))


study = Study(
    "faults", trial=ImageClassifier(images, network), space={"lr": loguniform(3e-4, 3e-3), "batch_size": 16},
    search=Random(), budget=Budget(trials=6, max_epochs=12), resources=Resources(cpus=1), warm_start=None,
)
"""
DIGITS = """
from tuner import *

study = Study(
    "faults", trial=ImageClassifier(data="digits", model="resnet18", weights=None),
    space={"lr": loguniform(3e-4, 3e-3), "image_size": 16},
    search=Random(), budget=Budget(trials=6, max_epochs=9), resources=Resources(cpus=1), warm_start=None,
)
"""
PHOTOS = """
from pathlib import Path

from tuner import *

study = Study(
    "faults", trial=ImageClassifier(data=f"folder:{Path(__file__).parent}/photos", model="resnet18", weights=None),
    space={"lr": loguniform(3e-4, 3e-3), "image_size": 16, "batch_size": 16},
    search=Random(), budget=Budget(trials=3, max_epochs=3), resources=Resources(cpus=1), warm_start=None,
)
"""


@dataclass
class Attempt:
    """One search, what is done to it, and what it has lost by that."""

    folder: Path
    draw: random.Random
    program: str
    storage: Path = field(init=False)
    hit: bool = True  # whether the fault came before all was over
    lost: list[str] = field(default_factory=list)
    before: dict[tuple[str, int], Any] = field(default_factory=dict)
    seconds_stopped: float = 5.0
    seconds_of_storm: float = 200.0
    address: str | None = None  # of a cluster that the search joins
    figures: str = ""  # what it measured

    def __post_init__(self) -> None:
        """The study's file is written."""
        self.storage = self.folder / "out"
        (self.folder / "space.py").write_text(self.program)

    @property
    def environment(self) -> dict[str, str]:
        """What commands of tuner find around them."""
        settings = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "TUNER_CACHE": str(self.folder / "c")}
        return {**os.environ, **settings, **(ON_LOOPBACK if self.address else {})}

    def beside(self, name: str) -> Attempt:
        """Another search of the same study, in the same cluster."""
        (self.folder / name).mkdir()
        return replace(self, folder=self.folder / name, lost=[], before={})

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command of tuner, in its own session."""
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "err.txt").open("a"),
            text=True,
            start_new_session=True,
        )

    def run(self) -> subprocess.Popen[str]:
        """The search itself begins."""
        joined = ["--address", self.address] if self.address else []
        return self.start("run", "space.py", "--storage", str(self.storage), "--quiet", "--wandb", "off", *joined)

    def wait(self, process: subprocess.Popen[str], what: str, seconds: float = LONGEST) -> int | None:
        """Its exit code; where it doesn't come to its end that is a loss, and it is killed with its children."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.lost.append(f"{what} did not end within {seconds:.0f} s")
            kill(process.pid)
            process.wait()
            return None

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill -9 of a driver."""
        self.hit = self.hit and process.poll() is None
        send(process.pid, signal.SIGKILL)
        process.wait()

    def kill_workers(self, process: subprocess.Popen[str], most: int = 100) -> None:
        """Kill -9 of workers that run a trial."""
        workers = find(process, "ray::TrialRunner")
        for worker in self.draw.sample(workers, min(most, len(workers))):
            send(worker, signal.SIGKILL)

    def until(self, condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = LONGEST) -> bool:
        """Whether it came true before the process ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            if condition():
                return True
            time.sleep(0.02)
        return False

    def random_moment(self, process: subprocess.Popen[str]) -> bool:
        """Wait until some share of the epochs is reported, and a moment more."""
        epochs = self.draw.randint(1, 25)
        reached = self.until(lambda: self.count("epoch_reported") >= epochs, process)
        time.sleep(self.draw.random() * 0.1)
        return reached

    def count(self, *kinds: str) -> int:
        """Events of these kinds so far."""
        try:
            texts = [file.read_text(errors="replace") for file in self.storage.glob("*/*/events/*.jsonl")]
        except FileNotFoundError:  # the storage was only tried, and is gone again
            return 0
        return sum(text.count(f'"event":"{kind}"') for text in texts for kind in kinds)

    def count_failed(self) -> int:
        """Trials of the run that have failed."""
        return sum(trial.status == "failed" for trial in load_run(self.storage).record.trials.values())

    def remember(self) -> None:
        """What was reported up to now must be there in the end."""
        if self.count("study_started"):
            for trial in load_run(self.storage).record.trials.values():
                self.before |= {(trial.trial, epoch): told.metrics for epoch, told in trial.epochs.items()}

    def finish(self) -> None:
        """Go on until the search is done, then look at what there is."""
        self.remember()
        if not self.count("study_started"):  # it had not begun: it starts again
            self.wait(self.run(), "run")
        for _ in range(MOST_RESUMES):
            if self.count("study_started") and self.is_done():
                break
            self.wait(self.start("resume", str(self.storage), "--quiet", "--wandb", "off"), "resume")
            self.remember()
        self.check()

    def is_done(self) -> bool:
        """Whether the run says so."""
        return load_run(self.storage).status == "finished"

    def check(self) -> None:
        """Note whatever was lost."""
        printed = (self.folder / "err.txt").read_text()
        if "Traceback" in printed:
            self.lost.append(f"a traceback: {printed.strip().splitlines()[-1]}")
        if not self.count("study_started"):
            self.lost.append("there is no run")
            return
        run = load_run(self.storage)
        if not self.is_done():
            self.lost.append(f"the run is {run.status}: {printed.strip().splitlines()[-1:]}")
            return
        study = load_study(self.folder / "space.py")
        self.lost += faults_of_a_run(Path(run.path), study, run.info["concurrency"])
        self.lost += self.missing(run)
        self.lost += wrong_winner(run)

    def missing(self, run: Run) -> Iterator[str]:
        """Epochs that were reported before a fault and aren't there, or not as they were; seconds may differ."""
        for (trial, epoch), metrics in self.before.items():
            known = run.record.trials[trial].epochs.get(epoch) if trial in run.record.trials else None
            if known is None or set(known.metrics) != set(metrics):
                yield f"epoch {epoch} of {trial} is gone"
            elif "loss" in metrics and known.metrics["loss"] != metrics["loss"]:
                yield f"epoch {epoch} of {trial} was {metrics}, is {known.metrics}"


def wrong_winner(run: Run) -> Iterator[str]:
    """Whether best/ holds the best trial with its weights."""
    folder, best = Path(run.path) / "best", run.record.best_trial()
    if best is None or not (folder / "metrics.json").is_file():
        yield "there is no winner"
    elif json.loads((folder / "metrics.json").read_text())["trial"] != best.trial:
        yield f"best/ is not {best.trial}"
    elif not ((folder / "model.safetensors").is_file() or (folder / "checkpoint").is_dir()):
        yield "the winner has no checkpoint"


# Processes


def descendants(pid: int) -> dict[int, str]:
    """Command lines of the live processes that a process has started, by id, its children's too."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = (int(state[1]), (entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    found: dict[int, str] = {}
    grown = {pid}
    while grown:
        grown = {child for child, (parent, _) in parents.items() if parent in grown}
        found |= {child: parents[child][1] for child in grown}
    return found


def commands() -> Iterator[tuple[int, list[str]]]:
    """The command lines of all processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_text(errors="replace").split("\0")[:-1]


def kill(pid: int) -> None:
    """Kill -9 of a process and of all that it has started."""
    for each in [pid, *descendants(pid)]:
        send(each, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """A signal, if the process is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def find(process: subprocess.Popen[str], part: str) -> list[int]:
    """Processes of a search whose command line has this in it."""
    return [pid for pid, command in descendants(process.pid).items() if part in command]
