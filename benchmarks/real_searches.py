"""Real searches of one to three minutes, for which benchmarks/time_left.py later predicts the time left.

    python benchmarks/real_searches.py FOLDER [--searches 6] [--first-seed 0] [--seconds 90] [--at-once 3] [--ray]

Every seed is another search: scheduler, search algorithm, workers, trials, the time of an epoch and how it changes.
Trials sleep, or need a processor. Without --ray they are asked for, and run by threads. Each search has a process of
its own, as most have; --at-once makes a busy machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tuner
from tuner import (
    ASHA,
    Budget,
    External,
    HyperBand,
    HyperOpt,
    MedianStopping,
    MultiFidelityGP,
    NoEarlyStopping,
    Random,
    Resources,
    Run,
    Study,
    choice,
    loguniform,
)

SCHEDULERS: dict[str, Any] = {
    "asha": ASHA(),
    "asha_again": ASHA(),
    "stop": ASHA(rule="stop"),
    "hyperband": HyperBand(),
    "median": MedianStopping(),
    "none": NoEarlyStopping(),
}
TRAINED = {"asha": 0.5, "asha_again": 0.5, "stop": 0.5, "hyperband": 0.6, "median": 0.7, "none": 1.0}  # of all epochs
PHASE_SECONDS, PHASES = 15.0, 60  # of a machine whose pace changes
SPACE = {"lr": loguniform(1e-5, 1e-1), "batch_size": choice([16, 32, 64, 128]), "layers": choice([1, 2, 3])}


class SimulatedError(Exception):
    """A trial that fails."""


@dataclass(frozen=True)
class Kind:
    """What a seed stands for."""

    seed: int
    scheduler: str
    search: Any
    workers: int
    trials: int
    max_epochs: int
    work: str  # "sleep", "busy" where the pace changes by time, or "cpu"
    second: float  # of an epoch
    slope: float  # by batch size
    layers: float
    noise: float
    start: float  # seconds
    failing: float
    phases: tuple[float, ...]

    def epoch(self, config: dict[str, Any], epoch: int) -> float:
        """Train for an epoch; its value."""
        draw = np.random.default_rng([self.seed, int(config["lr"] * 1e9), epoch])
        seconds = self.second * (64 / config["batch_size"]) ** self.slope * (1 + self.layers * (config["layers"] - 2))
        seconds *= float(np.exp(self.noise * draw.standard_normal()))
        seconds *= self.phases[int(time.time() / PHASE_SECONDS) % PHASES]
        if self.work == "cpu":
            begun, matrix = time.thread_time(), draw.random((150, 150))
            while time.thread_time() - begun < seconds:
                matrix = np.tanh(matrix @ matrix / 150)
        else:
            time.sleep(seconds)
        if draw.random() < self.failing:
            raise SimulatedError
        final = 0.9 - 0.05 * (np.log10(config["lr"]) + 3) ** 2 + 0.01 * config["layers"]
        return float(final * (1 - np.exp(-epoch / 4)) + 0.01 * draw.standard_normal())

    def train(self, config: dict[str, Any]) -> None:
        """The trial that Ray runs."""
        last = tuner.checkpoint()
        done = int((last / "epoch.txt").read_text()) if last else 0
        time.sleep(self.start)
        for epoch in range(done + 1, self.max_epochs + 1):
            value = self.epoch(config, epoch)
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "epoch.txt").write_text(str(epoch))
                tuner.report(accuracy=value, checkpoint=folder)

    def serve(self, search: tuner.Search, state: Path) -> None:
        """A thread that asks for trials."""
        while (trial := search.ask()) is not None:
            time.sleep(self.start)
            folder = state / trial.id
            folder.mkdir(exist_ok=True)
            try:
                for epoch in trial.epochs_left:
                    value = self.epoch(trial.config, epoch)
                    (folder / "epoch.txt").write_text(str(epoch))
                    if search.report(trial, epoch, value, checkpoint=folder) != "continue":
                        break
                search.tell(trial)
            except SimulatedError as error:
                search.tell(trial, error=error)


def kind(seed: int, seconds: float, *, ray: bool) -> Kind:
    """What a seed stands for, in a search of about this many seconds."""
    draw = np.random.default_rng([seed, 5, ray])
    scheduler = list(SCHEDULERS)[seed % len(SCHEDULERS)]
    search = [MultiFidelityGP(), HyperOpt(), Random()][int(draw.integers(3))] if scheduler != "hyperband" else Random()
    workers, trials, longest = int(draw.choice([1, 2, 2, 4])), int(draw.integers(8, 30)), int(draw.choice([5, 9, 27]))
    if longest == 27:
        trials = min(trials, 14)
    trained = TRAINED[scheduler] if longest > 5 else 0.8
    second = seconds * float(np.exp(0.3 * draw.standard_normal())) * workers / (trials * longest * trained)
    work = str(draw.choice(["sleep", "sleep", "busy", "cpu"]))
    if work == "cpu":
        second = min(second, 1.0) / min(workers, 2) ** 0.5 / 2
    return Kind(
        *(seed, scheduler, search, workers, trials, longest, work, second),
        *(float(draw.choice([0.0, 0.3, 0.7])), float(draw.choice([0.0, 0.3])), float(draw.uniform(0.03, 0.2))),
        start=float(np.exp(draw.uniform(np.log(0.05), np.log(2.0)))),
        failing=0.02 if seed % 7 == 3 else 0.0,
        phases=tuple(np.exp((0.3 if work == "busy" else 0.0) * draw.standard_normal(PHASES)).tolist()),
    )


def searched(what: Kind, storage: Path, *, ray: bool) -> Run:
    """The run of a search."""
    name = f"{'ray' if ray else 'ask'}{what.seed}_{what.scheduler}"
    study = Study(
        name,
        trial=what.train if ray else External(name),
        space=SPACE,
        metric="accuracy",
        mode="max",
        search=what.search,
        scheduler=SCHEDULERS[what.scheduler],
        budget=Budget(trials=what.trials, max_epochs=what.max_epochs),
        resources=Resources(cpus=2 / max(2, what.workers)),
        seed=what.seed,
    )
    if ray:
        return tuner.run(study, storage=storage, concurrency=what.workers, progress=False, raise_on_failure=False)
    with (
        tuner.Search(study, storage=storage, concurrency=what.workers) as search,
        tempfile.TemporaryDirectory() as state,
    ):
        threads = [threading.Thread(target=what.serve, args=(search, Path(state))) for _ in range(what.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return search.run


def main() -> None:
    """Search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="gets the runs")
    parser.add_argument("--searches", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=90.0, help="that a search takes, about")
    parser.add_argument("--at-once", type=int, default=1, help="searches that run at the same time")
    parser.add_argument("--ray", action="store_true", help="run trials with Ray")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.searches)
    if len(seeds) > 1:
        command = [sys.executable, *sys.argv, "--searches", "1", "--first-seed"]
        with ThreadPoolExecutor(options.at_once) as threads:
            list(threads.map(lambda seed: subprocess.run([*command, str(seed)], check=True), seeds))
        return
    run = searched(kind(options.first_seed, options.seconds, ray=options.ray), options.folder, ray=options.ray)
    print(f"{run.path}: {len(run.record.trials)} trials in {run.record.wall_seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
