"""Many trials, reports and checkpoints at once: tuner beside plain Ray Tune with worker reuse, in the same run.

    python benchmarks/scale.py [--quick] [--only SIZE …] [--rounds N]

The sizes are those of Ray Tune's own scalability tests, fewer and shorter, with trials that sleep: `bookkeeping` is
one-second trials, 16 at a time; `results` 16 trials that report 20 times a second, `results 8` 8 that report 10 times;
`checkpoints` 8 trials that save 10 MB every 6 s. Plain Ray Tune and tuner take turns. The least is what the sleeping
takes; the excess is the rest of the wall-clock from the first trial's start to the last one's end, less the mean time
until the first workers run a trial, which `start` tells. `driver` is the CPU time of the driver's process, Ray's part
in it included, by trial or report.

`generator` feeds the driver's own code with the reports of 16 and of 64 workers, as fast as it takes them: no process
is started and Ray's part is left out. `profile` says where the driver's CPU time goes in `results`.

The last line is one JSON object: of each size the excess of plain Ray over tuner's, and the generator's reports a
second.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CPUS = 2
MEGABYTES = 10


@dataclass(frozen=True)
class Size:
    """So many trials, `at_once`, each of `reports` that come every `seconds`, with a checkpoint or without."""

    trials: int
    at_once: int
    reports: int
    seconds: float
    megabytes: int = 0

    @property
    def least(self) -> float:
        """Seconds that all the sleeping takes."""
        return self.trials / self.at_once * self.reports * self.seconds


SIZES = {
    "bookkeeping": Size(trials=400, at_once=16, reports=1, seconds=1.0),
    "results": Size(trials=16, at_once=16, reports=600, seconds=0.05),
    "results 8": Size(trials=8, at_once=8, reports=300, seconds=0.1),
    "checkpoints": Size(trials=8, at_once=8, reports=5, seconds=6.0, megabytes=MEGABYTES),
}
QUICK = {
    "bookkeeping": Size(trials=8, at_once=4, reports=1, seconds=0.2),
    "results": Size(trials=4, at_once=4, reports=20, seconds=0.05),
}


def sleeping(config: dict[str, Any], size: Size, report: Callable[..., None]) -> None:
    """What a trial does on both sides; the clock is that of this machine."""
    begun = time.time()
    for number in range(1, size.reports + 1):
        time.sleep(max(0.0, begun + number * size.seconds - time.time()))
        folder = None
        if size.megabytes:
            folder = tempfile.mkdtemp()
            (Path(folder) / "weights").write_bytes(os.urandom(size.megabytes * 2**20))
        report({"loss": config["x"], "begun": begun, "told": time.time()}, folder)


def plain(size: Size, *, profiled: bool) -> dict[str, Any]:
    """The size by plain Ray Tune, whose workers are used again."""
    import ray
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        def report(metrics: dict[str, Any], folder: str | None) -> None:
            tune.report(metrics, checkpoint=tune.Checkpoint(folder) if folder else None)

        sleeping(config, size, report)

    ray.init(address="local", num_cpus=CPUS, log_to_driver=False, include_dashboard=False)
    with tempfile.TemporaryDirectory() as folder:
        fit = tune.Tuner(
            tune.with_resources(trial, {"cpu": CPUS / size.at_once}),
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=size.trials, reuse_actors=True, max_concurrent_trials=size.at_once),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit
        begun, cpu = time.time(), time.process_time()
        results = fit()
        ended, cpu = time.time(), time.process_time() - cpu
    assert len(results) == size.trials
    assert not results.errors
    starts = sorted(result.metrics["begun"] for result in results)
    assert all(result.metrics["training_iteration"] == size.reports for result in results)
    ray.shutdown()
    return {"wall": ended - begun, "cpu": cpu, "start": statistics.mean(starts[: size.at_once]) - begun}


def ours(size: Size, *, profiled: bool) -> dict[str, Any]:
    """The same by tuner, from its search's first trial on."""
    import tuner

    def trial(config: dict[str, Any]) -> None:
        def report(metrics: dict[str, Any], folder: str | None) -> None:
            tuner.report(metrics, checkpoint=folder)

        sleeping(config, size, report)

    study = tuner.Study(
        "scale",
        trial=trial,
        space={"x": tuner.uniform(0, 1)},
        metric="loss",
        mode="min",
        search=tuner.Random(),
        scheduler=tuner.NoEarlyStopping(),
        budget=tuner.Budget(trials=size.trials, max_epochs=size.reports),
        resources=tuner.Resources(cpus=CPUS / size.at_once),
        warm_start=None,
    )
    clock, profile = _Clock(), cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        if profiled:
            profile.enable()
        run = tuner.run(study, storage=folder, concurrency=size.at_once, listeners=[clock])
        profile.disable()
        record = run.record
        assert record.counts()["completed"] == size.trials, record.failures()
        starts = sorted(trial.epochs[1].metrics["begun"] for trial in record.trials.values())
        assert record.epochs() == size.trials * size.reports
    return {
        "wall": clock.ended - clock.begun,
        "cpu": clock.cpu_ended - clock.cpu_begun,
        "start": statistics.mean(starts[: size.at_once]) - clock.begun,
        "parts": _parts(profile) if profiled else {},
    }


class _Clock:
    """When the first trial was started, and the last one ended."""

    begun = ended = cpu_begun = cpu_ended = 0.0

    def on_event(self, event: dict[str, Any]) -> None:
        """Called for every event of the search."""
        if event["event"] == "trial_started" and not self.begun:
            self.begun, self.cpu_begun = time.time(), time.process_time()
        if event["event"] == "trial_ended":
            self.ended, self.cpu_ended = time.time(), time.process_time()


def _parts(profile: cProfile.Profile) -> dict[str, float]:
    """CPU seconds by who spends them: rooms of tuner, Ray's packages, the rest."""
    spent: dict[str, float] = defaultdict(float)
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if "/tuner/" in file:
            part = "tuner: " + Path(file.rpartition("/tuner/")[2]).parts[0].removesuffix(".py")
        elif "/ray/" in file:
            part = "Ray Tune" if "/ray/tune/" in file or "/ray/air/" in file else "Ray"
        elif name in ("<built-in method time.sleep>", "<method 'acquire' of '_thread.lock' objects>"):
            continue
        else:
            part = "json" if "/json/" in file or "_json" in name else "Python and libraries"
        spent[part] += own
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def generator(workers: int, reports: int) -> dict[str, Any]:
    """Reports a second that the driver's own code takes: messages as workers send them, from so many trials in turn."""
    from ray.tune.schedulers import TrialScheduler

    import tuner
    from tuner.driver.adapters import Bridge, RayScheduler, RayTrial
    from tuner.loop.search_loop import SearchLoop
    from tuner.resources import Resources
    from tuner.storage.folder import LocalFolder
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
                decided = scheduler.on_trial_result(None, trial, {REPORT: [json.dumps(told)]})
                assert decided == TrialScheduler.CONTINUE
                scheduler._bridge.look_around()
        loop.flush()
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        assert loop.record.epochs() == workers * reports
        loop.close()
    return {"wall": workers * reports / wall, "cpu": workers * reports / cpu}


def measure(part: str, **more: Any) -> dict[str, Any]:
    """One part in a process of its own, so that settings of one side never reach the other."""
    command = [sys.executable, __file__, "--part", json.dumps([part, more])]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=1800).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def perform(part: str, size: str = "", *, quick: bool = False, profiled: bool = False, **more: int) -> dict[str, Any]:
    """What `measure` asked for."""
    if part == "generator":
        return generator(**more)
    return (ours if part == "tuner" else plain)((QUICK if quick else SIZES)[size], profiled=profiled)


def compared(name: str, size: Size, *, rounds: int, quick: bool) -> float:
    """Print a size's rows; how many times more plain Ray Tune has beyond the least."""
    excess: dict[str, list[float]] = {}
    rows: dict[str, list[dict[str, Any]]] = {"plain": [], "tuner": []}
    for _ in range(rounds):
        for side, found in rows.items():
            found.append(measure(side, size=name, quick=quick))
    for side, found in rows.items():
        wall, start, cpu = (statistics.median(row[what] for row in found) for what in ("wall", "start", "cpu"))
        excess[side] = [row["wall"] - row["start"] - size.least for row in found]
        beyond, each = statistics.median(excess[side]), 1e3 * cpu / (size.trials * size.reports)
        told = f"{size.least:8.1f}{wall:8.1f}{start:8.1f}{beyond:8.1f}{size.least / (size.least + beyond):8.0%}"
        print(f"{name:14}{side:8}{told}{cpu:9.1f}{each:9.2f}", flush=True)
    return statistics.median(excess["plain"]) / max(0.1, statistics.median(excess["tuner"]))


def main() -> None:
    """Print the tables and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures claim nothing")
    parser.add_argument("--only", nargs="+", choices=[*SIZES, "generator", "profile"], metavar="SIZE")
    parser.add_argument("--rounds", type=int, default=1, help="of both in turn; medians are told")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, more = json.loads(options.part)
        print(json.dumps(perform(part, **more)))
        return
    from tuner.machine import this_machine

    machine, chosen = this_machine(), options.only or [*SIZES, "generator", "profile"]
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{machine.processor}, {CPUS} of {machine.cpus} CPUs, load {load}, Python {platform.python_version()}, "
          f"ray {version('ray')}")  # fmt: skip
    print(f"{'':22}{'least':>8}{'wall':>8}{'start':>8}{'excess':>8}{'ideal':>8}{'driver s':>9}{'ms each':>9}")
    figures: dict[str, float] = {}
    for name, size in (QUICK if options.quick else SIZES).items():
        if name in chosen:
            figures[name] = round(compared(name, size, rounds=options.rounds, quick=options.quick), 2)
    if "generator" in chosen:
        for workers in (16, 64):
            found = measure("generator", workers=workers, reports=20 if options.quick else 500)
            print(
                f"generator, {workers} workers: {found['wall']:.0f} reports a second, {found['cpu']:.0f} a CPU second"
            )
            figures[f"reports a second of {workers}"] = round(found["wall"])
    if "profile" in chosen:
        found = measure("tuner", size="results", quick=options.quick, profiled=True)
        total = sum(found["parts"].values())
        print(f"the driver's own time in `results`, {total:.1f} s of its main thread under cProfile:")
        for part, seconds in list(found["parts"].items())[:10]:
            print(f"  {part:24}{seconds:7.2f} s {seconds / total:5.0%}")
    print(json.dumps(figures))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
