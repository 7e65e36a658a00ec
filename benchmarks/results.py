"""How long it takes to read a run and to write its report, compared with Optuna reading the same trials from its
storage.

    python benchmarks/results.py [--quick]

A search of 200 trials of 27 epochs on Ray over a cheap function, and a folder of 10,000 trials of 20 epochs, written
without one. Each figure is of its own process, imports included, with the most memory that it held. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import tuner
from tuner import Budget, NoEarlyStopping, Random, Resources, Study, choice, load_run, loguniform, uniform
from tuner.history.events import EventLog
from tuner.history.run_info import FORMAT, write_info
from tuner.machine.hardware import this_machine
from tuner.results import export
from tuner.space import Space, space_record
from tuner.storage.folder import LocalFolder

SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "batch_size": choice([32, 64, 128]),
    "optimizer": choice(["adam", "sgd"]),
    "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
    "dropout": uniform(0.0, 0.7),
}

PROGRAMS = {
    "load": "import tuner; run = tuner.load_run({path!r}); run.trials; run.history",
    "report": "import tuner; from tuner.html_report import write_report; write_report(tuner.load_run({path!r}))",
    "optuna": "import optuna; optuna.logging.set_verbosity(40); "
    "optuna.load_study(study_name={study!r}, storage='sqlite:///{path}.db').trials_dataframe()",
}
SMALL = "200 trials of 27 epochs"
TIMED = """
import resource, time
begun = time.perf_counter()
{program}
print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def train(config: dict[str, Any]) -> None:
    """A cheap function with a curve."""
    for epoch in range(27):
        tuner.report(loss=abs(config["lr"] - 0.01) + config["dropout"] / 10 + 1 / (epoch + 1))


def searched(storage: Path, trials: int) -> Path:
    """A run folder that a search on Ray made."""
    study = Study(
        "cheap",
        trial=train,
        space=SPACE,
        metric="loss",
        mode="min",
        search=Random(),
        scheduler=NoEarlyStopping(),
        budget=Budget(trials=trials, max_epochs=27),
        resources=Resources(cpus=1),
        warm_start=None,
    )
    return Path(tuner.run(study, storage=storage, wandb="off").path)


def written(folder: Path, trials: int, epochs: int) -> Path:
    """A run folder of this many trials, without a search."""
    generator, space = np.random.default_rng(0), Space(SPACE)
    log = EventLog(LocalFolder(folder))
    log.append("study_started", trials=trials)
    for number in range(trials):
        config = space.sample(generator)
        trial = f"{number:05d}"
        log.append("trial_started", trial=trial, number=number, config=config, seed=number, from_epoch=0)
        for epoch in range(1, epochs + 1):
            metrics = {"loss": config["lr"] + 1 / epoch, "train_loss": 1 / epoch, "seconds": 1.0}
            log.append("epoch_reported", trial=trial, epoch=epoch, metrics=metrics, decision="continue")
        log.append("trial_ended", trial=trial, status="completed")
    log.append("study_ended", reason="trials")
    log.close()
    info = {"study": "cheap", "metric": "loss", "mode": "min", "status": "finished", "started": "2026", "rungs": [3]}
    info |= {"space": space_record(space), "budget": {"max_epochs": epochs}, "host": "elsewhere", "format": FORMAT}
    write_info(LocalFolder(folder), info)
    return folder


def measure(program: str, path: Path) -> tuple[float, float]:
    """Seconds and bytes of a program in its own process."""
    code = TIMED.format(program=PROGRAMS[program].format(path=str(path), study="cheap"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, memory = done.stdout.split()[-2:]
    return float(seconds), float(memory)


def main() -> None:
    """Make, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small runs: does it run?")
    options = parser.parse_args()
    machine = this_machine()
    print(
        f"{machine.processor}, {machine.cpus} CPUs, Python {platform.python_version()}, pandas {version('pandas')}, "
        f"plotly {version('plotly')}, optuna {version('optuna')}"
    )
    print(f"{'run':30}{'read':>10}{'Optuna':>10}{'report':>10}{'memory':>10}{'report.html':>13}", flush=True)
    sizes: dict[str, Callable[[Path], Path]] = {
        SMALL: lambda storage: searched(storage, 8 if options.quick else 200),
        "10,000 trials of 20 epochs": lambda storage: written(storage / "run", 100 if options.quick else 10_000, 20),
    }
    results: dict[str, dict[str, float]] = {}
    for name, make in sizes.items():
        with tempfile.TemporaryDirectory() as storage:
            path = make(Path(storage))
            load, _ = measure("load", path)
            report, memory = measure("report", path)
            size = (path / "report.html").stat().st_size
            results[name] = {"load_seconds": load, "report_seconds": report}
            results[name] |= {"report_memory_bytes": memory, "report_bytes": size}
            beside = ""
            if name == SMALL:  # Optuna's storage takes minutes to write for the other
                export(load_run(path), "optuna", f"{path}.db")
                optuna, _ = measure("optuna", path)
                results[name]["optuna_ratio"] = optuna / load
                beside = f"{optuna:.2f} s"
        print(
            f"{name:30}{load:8.2f} s{beside:>10}{report:8.2f} s{memory / 1e6:7.0f} MB{size / 1e6:10.1f} MB",
            flush=True,
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
