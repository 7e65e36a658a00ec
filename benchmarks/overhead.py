"""The overhead of a trial: tuner compared with plain Ray Tune, in the same run.

    python benchmarks/overhead.py [--quick]

Trivial trials that report five epochs, on two CPUs; the start-up of Ray counts on neither side. `first epoch` is the
time from `python -m tuner run search_spaces/digits.py` to its first reported epoch. The last line is one JSON object:
ratio_40, seconds_per_trial_1000, ratio_torch, first_epoch_seconds, memory_kb_per_trial, what the driver's resident
memory grows by from its 400th to its 4,000th trial of two epochs, and for Random, MultiFidelityGP and a race (Random
with repeats=3) growth_…, what a trial costs the search itself in the last tenth of 3,000 relative to the first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

REPORTS = 5
CPUS = 2


def trivial(config):
    """Five epochs of nothing."""
    import tuner

    for epoch in range(REPORTS):
        tuner.report(loss=config["x"] / (epoch + 1))


def with_torch(config):
    """Five epochs of nothing, by a trial that needs torch."""
    import torch

    import tuner

    for epoch in range(REPORTS):
        tuner.report(loss=float(torch.tensor(config["x"])) / (epoch + 1))


def plain_trivial(config):
    """The same for plain Ray Tune."""
    from ray import tune

    for epoch in range(REPORTS):
        tune.report({"loss": config["x"] / (epoch + 1)})


def plain_with_torch(config):
    """The same for plain Ray Tune, by a trial that needs torch."""
    import torch
    from ray import tune

    for epoch in range(REPORTS):
        tune.report({"loss": float(torch.tensor(config["x"])) / (epoch + 1)})


def plain_ray(trials: int, *, torch: bool, reuse: bool) -> dict[str, float]:
    """Seconds of `Tuner.fit` with Ray Tune's defaults (or with reuse_actors)."""
    import ray
    from ray import tune

    ray.init(address="local", num_cpus=CPUS, log_to_driver=False, include_dashboard=False)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            plain_with_torch if torch else plain_trivial,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        begun = time.perf_counter()
        results = tuner.fit()
        seconds = time.perf_counter() - begun
    assert len(results) == trials
    assert not results.errors
    ray.shutdown()
    return {"seconds": seconds, "trials": trials}


def twice(config):
    """Two epochs of nothing."""
    import tuner

    for epoch in range(2):
        tuner.report(loss=config["x"] / (epoch + 1))


def random_search(trials: int, trial: Callable[[dict[str, float]], None]):
    """The study that tuner runs here."""
    import tuner

    return tuner.Study(
        "overhead",
        trial=trial,
        space={"x": tuner.uniform(0, 1)},
        metric="loss",
        mode="min",
        search=tuner.Random(),
        scheduler=tuner.NoEarlyStopping(),
        budget=tuner.Budget(trials=trials, max_epochs=REPORTS),
    )


def resident_kb(field: str) -> int:
    """Memory of this process in kB: VmRSS now, VmHWM at most so far."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0])


class Resident:
    """A listener that notes the driver's memory when a tenth of the trials has ended, and when all have."""

    def __init__(self, trials: int) -> None:
        self._ended, self._moments, self.kb = 0, (trials // 10, trials), list[int]()

    def on_event(self, event) -> None:
        """Take one event."""
        self._ended += event["event"] == "trial_ended"
        if event["event"] == "trial_ended" and self._ended in self._moments:
            self.kb.append(resident_kb("VmRSS"))


def memory(trials: int) -> dict[str, float]:
    """The driver's resident memory in kB after a tenth of the trials, after all, and at most, up to the report."""
    import tuner

    resident = Resident(trials)
    with tempfile.TemporaryDirectory() as folder:
        run = tuner.run(random_search(trials, twice), storage=folder, concurrency=CPUS, listeners=[resident])
        assert run.record.counts()["completed"] == trials, run.record.failures()
    early, late = resident.kb
    grown = (late - early) / (trials - trials // 10)
    return {"early": early, "late": late, "a_trial": grown, "most": resident_kb("VmHWM")}


def ours(trials: int, *, torch: bool) -> dict[str, float]:
    """Seconds of a search by tuner, from the search's first event to its last, and where they went."""
    import tuner

    study = random_search(trials, with_torch if torch else trivial)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run = tuner.run(study, storage=folder, concurrency=CPUS)
        total = time.perf_counter() - begun
        starts = sorted(trial.started for trial in run.record.trials.values())
        first = min(min(e.time for e in trial.epochs.values()) for trial in run.record.trials.values())
        assert run.record.counts()["completed"] == trials, run.record.failures()
    return {
        "seconds": run.record.active_seconds,
        "trials": trials,
        "first_worker_seconds": first - starts[0],
        "total_seconds": total,
    }


def cpu_seconds(driver: int) -> dict[int, tuple[str, float]]:
    """What the driver's process and all that it started have computed: their names and CPU seconds, by id."""
    children: dict[int, list[int]] = {}
    found: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, fields = entry.read_text().partition("(")[2].rpartition(") ")
            values = fields.split()
            children.setdefault(int(values[1]), []).append(int(entry.parent.name))
            found[int(entry.parent.name)] = name, (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
    family = [driver]
    for process in family:
        family += children.get(process, [])
    return {process: found[process] for process in family if process in found}


def first_epoch() -> dict[str, float]:
    """Seconds from typing the demo's command to its first epoch, by stage, and CPU seconds until then, by process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tuner", "run", "search_spaces/digits.py", "--storage", folder, "--quiet"]
        begun = time.time()
        process = subprocess.Popen([*command, "--trials", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        computed: dict[int, tuple[str, float]] = {}
        while not any("epoch_reported" in file.read_text() for file in Path(folder).rglob("events/*.jsonl")):
            assert process.poll() is None, "the demo ended before its first epoch"
            computed |= cpu_seconds(process.pid)
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        from tuner import load_run

        events = load_run(folder).events
    times: dict[str, float] = {}
    for event in events:
        times.setdefault(event["event"], event["time"] - begun)
    seconds = {event["trial"]: event["metrics"]["seconds"] for event in events if event["event"] == "epoch_reported"}
    by_process: dict[str, float] = {}
    for name, spent in computed.values():
        by_process[f"cpu_{name}"] = round(by_process.get(f"cpu_{name}", 0.0) + spent, 2)
    return {
        **by_process,
        "cpu": sum(by_process.values()),
        "until_ray": times["study_started"],
        "until_first_epoch": times["epoch_reported"],
        "of_which_epoch": max(seconds.values()),
    }


def growth(trials: int, search: str, repeats: int = 1) -> dict[str, float]:
    """CPU milliseconds a trial costs the search itself, without Ray: the mean of its first and its last tenth."""
    import random

    import tuner
    from tuner.loop.search_loop import SearchLoop
    from tuner.storage.folder import LocalFolder

    study = tuner.Study(
        "growth",
        trial=trivial,
        space={"x": tuner.uniform(0, 1), "lr": tuner.loguniform(1e-4, 1), "size": tuner.choice([16, 32])},
        metric="loss",
        mode="min",
        search=getattr(tuner, search)(),
        scheduler=tuner.NoEarlyStopping(),
        repeats=repeats,
        budget=tuner.Budget(trials=trials, max_epochs=REPORTS),
    )
    begun = []
    with tempfile.TemporaryDirectory() as folder:
        loop = SearchLoop(study, LocalFolder(folder), concurrency=1)
        while (start := loop.next_action()) is not None:
            begun.append(time.process_time())
            noise = 0.1 * random.Random(start.seed).random() if repeats > 1 else 0.0
            for epoch in range(1, REPORTS + 1):
                loop.report(start.trial, epoch, {"loss": start.config["x"] + start.config["lr"] / epoch + noise})
        begun.append(time.process_time())
        loop.end()
        loop.close()
    tenth = trials // 10
    return {"first": (begun[tenth] - begun[0]) / tenth * 1e3, "last": (begun[-1] - begun[-1 - tenth]) / tenth * 1e3}


PARTS = {
    "growth_Random": lambda trials: growth(trials, "Random"),
    "growth_MultiFidelityGP": lambda trials: growth(trials, "MultiFidelityGP"),
    "growth_race": lambda trials: growth(trials, "Random", repeats=3),
    "plain": lambda trials: plain_ray(trials, torch=False, reuse=False),
    "plain_reuse": lambda trials: plain_ray(trials, torch=False, reuse=True),
    "plain_torch": lambda trials: plain_ray(trials, torch=True, reuse=False),
    "ours": lambda trials: ours(trials, torch=False),
    "ours_torch": lambda trials: ours(trials, torch=True),
    "memory": memory,
    "first_epoch": lambda _: first_epoch(),
}


def measure(part: str, trials: int = 0) -> dict[str, float]:
    """One part in its own process, so that settings of one side never reach the other."""
    command = [sys.executable, __file__, "--part", part, "--trials", str(trials)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test of under a minute; its figures claim nothing"
    )
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--trials", type=int, default=0)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options.trials)))
        return
    few, torches = (4, 2) if options.quick else (40, 16)
    from tuner.machine.hardware import this_machine

    machine = this_machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("ray", "torch"))
    print(f"{machine.processor}, {CPUS} of {machine.cpus} CPUs, Python {platform.python_version()}, {packages}")
    print(f"{REPORTS} reports a trial; seconds without the start-up of Ray")
    rows = {
        "plain Ray Tune": measure("plain", few),
        "plain Ray Tune, reuse_actors": {} if options.quick else measure("plain_reuse", few),
        "tuner": measure("ours", few),
        "plain Ray Tune, torch": measure("plain_torch", torches),
        "tuner, torch": measure("ours_torch", torches),
    }
    rows["tuner, many"] = rows["tuner"] if options.quick else measure("ours", 1000)
    print(f"{'':30}{'trials':>8}{'seconds':>9}{'a trial':>9}{'until the first report':>24}")
    for name, row in ((name, row) for name, row in rows.items() if row):
        first = f"{row['first_worker_seconds']:.2f}" if "first_worker_seconds" in row else ""
        print(f"{name:30}{row['trials']:8.0f}{row['seconds']:9.2f}{row['seconds'] / row['trials']:9.3f}{first:>24}")
    start = measure("first_epoch")
    print(
        f"python -m tuner run: {start['until_ray']:.1f} s until Ray runs, {start['until_first_epoch']:.1f} s until the "
        f"first epoch, of which training it took {start['of_which_epoch']:.1f} s; {start['cpu']:.1f} CPU seconds"
    )
    many = 60 if options.quick else 3000
    grown = {search: measure(f"growth_{search}", many) for search in ("Random", "MultiFidelityGP", "race")}
    for search, cost in grown.items():
        print(
            f"{search}, {many} trials without Ray: {cost['first']:.2f} ms a trial in the first tenth, "
            f"{cost['last']:.2f} ms in the last"
        )
    kept = measure("memory", 60 if options.quick else 4000)
    print(
        f"memory of the driver: {kept['early'] / 1e3:.0f} MB after a tenth of the trials, {kept['late'] / 1e3:.0f} MB "
        f"after all: {kept['a_trial']:.1f} KB a trial; {kept['most'] / 1e3:.0f} MB at most, with tables and report"
    )
    figures = {
        "memory_kb_per_trial": kept["a_trial"],
        "ratio_40": rows["plain Ray Tune"]["seconds"] / rows["tuner"]["seconds"],
        "seconds_per_trial_1000": rows["tuner, many"]["seconds"] / rows["tuner, many"]["trials"],
        "ratio_torch": rows["plain Ray Tune, torch"]["seconds"] / rows["tuner, torch"]["seconds"],
        "first_epoch_seconds": start["until_first_epoch"],
        **{f"growth_{search}": cost["last"] / cost["first"] for search, cost in grown.items()},
    }
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main()
