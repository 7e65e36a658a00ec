"""Searches of sleeping trials at a size that a small machine holds, by tuner and by plain Ray Tune.

python -m benchmarks.scale_rows ROW SIDE    prints wall-clock, ideal and the workers' start in seconds, as JSON
"""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MARKS = (
    "SCALE_MARKS"  # the variable that names a folder, in which each worker leaves a file when its first trial begins
)
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Row:
    """One of Ray Tune's own benchmarks, smaller.

    Attributes:
        trials: in all
        at_once: how many run at a time, each a process
        reports: of each trial
        seconds: that a trial sleeps before each report
    """

    trials: int
    at_once: int
    reports: int
    seconds: float

    @property
    def ideal(self) -> float:
        """Seconds that the sleeping alone takes."""
        return -(-self.trials // self.at_once) * self.reports * self.seconds

    def least(self, starts: Sequence[float]) -> float:
        """Seconds that the search takes at least if its workers are ready only then: whoever is free sleeps next."""
        free = list(starts)
        heapq.heapify(free)
        for _ in range(self.trials):
            ended = free[0] + self.reports * self.seconds
            heapq.heapreplace(free, ended)
        return max(free)


ROWS = {
    "bookkeeping": Row(400, 16, 1, 1.0),
    "results, 8 at 10 a second": Row(8, 8, 300, 0.1),
    "results, 16 at 20 a second": Row(16, 16, 600, 0.05),
}
QUICK = {"bookkeeping": Row(4, 2, 1, 0.2), "results": Row(2, 2, 5, 0.1)}
SIDES = ("tuner", "plain Ray Tune")


def sleeper(row: Row, report: Callable[[float], None]) -> None:
    """What every trial does: the first of its worker says that it has begun, then it sleeps and reports."""
    with suppress(FileExistsError), (Path(os.environ[MARKS]) / str(os.getpid())).open("x") as mark:
        mark.write(str(time.time()))
    for number in range(row.reports):
        time.sleep(row.seconds)
        report(1 / (number + 1))


def by_tuner(row: Row, folder: str, share: float) -> None:
    """A search by tuner, its report included."""
    import tuner

    def train(config: dict[str, Any]) -> None:
        sleeper(row, lambda loss: tuner.report(loss=loss))

    study = tuner.Study(
        "scale",
        trial=train,
        space={"x": tuner.uniform(0, 1)},
        metric="loss",
        mode="min",
        search=tuner.Random(),
        scheduler=tuner.NoEarlyStopping(),
        budget=tuner.Budget(trials=row.trials, max_epochs=row.reports),
        resources=tuner.Resources(cpus=share, gpus=0),
        warm_start=None,
    )
    run = tuner.run(study, storage=folder, concurrency=row.at_once)
    assert run.record.counts()["completed"] == row.trials, run.record.failures()


def by_ray(row: Row, folder: str, share: float) -> None:
    """The same by Ray Tune with its defaults, except for workers that are used again."""
    import ray
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        sleeper(row, lambda loss: tune.report({"loss": loss}))

    ray.init(address="local", num_cpus=os.cpu_count(), log_to_driver=False, include_dashboard=False)
    found = tune.Tuner(
        tune.with_resources(train, {"cpu": share}),
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=row.trials, reuse_actors=True, max_concurrent_trials=row.at_once),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    ).fit()
    assert len(found) == row.trials
    assert not found.errors
    ray.shutdown()  # as tuner ends what it started


def measured(row: Row, side: str) -> dict[str, float]:
    """Seconds of one search in this process.

    `start` is when the last of the workers began with its first trial, `least` what the search takes at least as its
    workers were ready no sooner, and `excess` what it took beyond that. `workers` may be fewer than `at_once`, as plain
    Ray Tune doesn't always start all.
    """
    share = (os.cpu_count() or 1) / row.at_once
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as marks:
        os.environ[MARKS] = marks
        begun = time.time()
        (by_tuner if side == SIDES[0] else by_ray)(row, folder, share)
        wall = time.time() - begun
        starts = sorted(float(path.read_text()) - begun for path in Path(marks).iterdir())
    starts = starts[: row.at_once]
    least = row.least(starts)
    found = {"wall": wall, "ideal": row.ideal, "start": starts[-1], "least": least, "excess": wall - least}
    return found | {"workers": len(starts)}


def measured_apart(name: str, side: str, *, quick: bool) -> dict[str, float]:
    """The same in its own process, with the CPU seconds of all processes that took part, as far as seen."""
    from benchmarks.overhead import cpu_seconds

    command = [sys.executable, "-m", "benchmarks.scale_rows", name, side, *["--quick"] * quick]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        computed: dict[int, tuple[str, float]] = {}
        while process.poll() is None:
            computed |= cpu_seconds(process.pid)
            time.sleep(LOOK_SECONDS)
        assert process.stdout is not None
        told: dict[str, float] = json.loads(process.stdout.read().strip().splitlines()[-1])
    cpu = sum(spent for _, spent in computed.values())
    return told | {"cpu": cpu, "cpu of the driver": computed[process.pid][1]}


if __name__ == "__main__":
    rows = QUICK if "--quick" in sys.argv else ROWS
    print(json.dumps(measured(rows[sys.argv[1]], sys.argv[2])))
