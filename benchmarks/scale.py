"""The cost of many trials and many reports: tuner compared with plain Ray Tune, and the time of the driver's own code.

    python benchmarks/scale.py [--quick]

Bookkeeping is many short trials, results many reports; trials sleep. Plain Ray Tune uses its workers again
(`reuse_actors=True`). Two cores decide when the workers are ready; the least is what a search takes from these moments
on if nothing else costs time, and excess is what it takes beyond that.

Then a generator feeds the code of the driver with messages as workers send them, as fast as it takes them: no process
is started, and Ray's part is left out. The last line is one JSON object: of each number of workers, the reports a
second and a CPU second; of each row and side, its seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
WORKERS = (16, 64)


def generator(workers: int, reports: int) -> dict[str, Any]:
    """Reports a second that the driver's own code takes: messages like those of workers, from this many trials."""
    from ray.tune.schedulers import TrialScheduler

    import tuner
    from tuner.driver.adapters import Bridge, RayScheduler
    from tuner.driver.ray_inside.controller import RayTrial
    from tuner.loop.search_loop import SearchLoop
    from tuner.storage.folder import LocalFolder
    from tuner.study.resources import Resources
    from tuner.worker.assignment import REPORT

    study = tuner.Study(
        "generator",
        trial=lambda config: None,
        space={"x": tuner.uniform(0, 1)},
        metric="loss",
        mode="min",
        search=tuner.Random(),
        scheduler=tuner.ASHA(grace_epochs=reports, rule="stop"),
        budget=tuner.Budget(trials=workers, max_epochs=reports + 1),
    )
    with tempfile.TemporaryDirectory() as folder:
        loop = SearchLoop(study, LocalFolder(folder), concurrency=workers)
        bridge = Bridge(loop, Resources(cpus=1, gpus=0), folder, save_epochs=[], leave=lambda: False)
        scheduler, trials = RayScheduler(bridge), []
        while len(trials) < workers:
            start = loop.next_action()
            assert start is not None
            trial = RayTrial.__new__(RayTrial)  # Ray's own state of a trial is none of what is measured
            trial.ours, trial.status = start.trial, RayTrial.RUNNING
            bridge._current[start.trial] = trial
            trials.append(trial)
        begun, cpu = time.perf_counter(), time.process_time()
        for epoch in range(1, reports + 1):
            for trial in trials:
                told = {"epoch": epoch, "metrics": {"loss": 1 / epoch, "accuracy": 0.5, "seconds": 0.05}, "notes": []}
                told |= {"saved": [], "unsaved": [], "no_space": [], "saving": None, "saves": False, "leaving": False}
                decided = scheduler.on_trial_result(None, trial, {REPORT: [[json.dumps(told), 0.0]]})
                assert decided == TrialScheduler.CONTINUE
                scheduler._bridge.look_around()
        loop.flush()
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        assert loop.record.epochs() == workers * reports
        loop.close()
    return {"wall": workers * reports / wall, "cpu": workers * reports / cpu}


def beside_ray(*, quick: bool) -> dict[str, dict[str, float]]:
    """The rows' seconds, by row and side, as a table."""
    from benchmarks.scale_rows import QUICK, ROWS, SIDES, measured_apart

    print("seconds".ljust(41) + "workers   wall  ideal  start  least  excess  of the ideal    CPU  driver  load")
    found = {}
    for name, row in (QUICK if quick else ROWS).items():
        for side in SIDES:
            load = os.getloadavg()[0]
            told = found[f"{name}, {side}"] = measured_apart(name, side, quick=quick)
            told["load"] = load
            columns = (row.ideal, told["start"], told["least"], told["excess"])
            print(
                f"{f'{name}, {side}':41}{told['workers']:7}{told['wall']:7.1f}",
                *(f"{seconds:7.1f}" for seconds in columns),
                f"{row.ideal / told['wall']:14.0%}{told['cpu']:7.1f}{told['cpu of the driver']:8.1f}{load:6.1f}",
                sep="",
                flush=True,
            )
    return found


def main() -> None:
    """Print the table, the rates and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures claim nothing")
    options = parser.parse_args()
    from tuner.machine.hardware import this_machine

    machine, load = this_machine(), " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(
        f"{machine.processor}, {machine.cpus} CPUs, load {load}, Python {platform.python_version()}, "
        f"ray {version('ray')}"
    )
    figures: dict[str, Any] = dict(beside_ray(quick=options.quick))
    for workers in WORKERS:
        found = generator(workers, 20 if options.quick else 500)
        print(f"{workers} workers: {found['wall']:.0f} reports a second, {found['cpu']:.0f} a CPU second")
        figures[str(workers)] = {name: round(rate) for name, rate in found.items()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
