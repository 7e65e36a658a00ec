"""The loss from choosing a search's winner by noisy validation values, on LCBench's learning curves.

    python benchmarks/choice.py --lcbench DIR [--seeds 12] [--first-seed 200] [--quick]

DIR holds LCBench's surrogate with its `simulator.py` (`pip install .[bench]`), as for `search.py`. The default search
runs on 8 tasks, two trials at a time; what it sees of an epoch is the share of this many images that are right, drawn
by the accuracy. For the winner the true accuracy of its network counts: the loss is how far it is below the best epoch
of any of the search's trials, as a share of the distance between a median random configuration and the best one. Errors
are standard errors over tasks. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import multiprocessing
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import search
from peers import load_simulator, seed_of

from tuner import ASHA, MultiFidelityGP
from tuner.history.records import RunRecord

WORKERS = 2
SETTINGS = [(10, 9, 300), (10, 9, 1000), (10, 9, 10000), (20, 9, 1000), (20, 30, 1000), (20, 30, 10000)]
Lost = TypeVar("Lost")
Curves = dict[str, list[float]]
Network = tuple[str, int]  # a trial, and how many epochs of it, less one


@dataclass(frozen=True)
class Searched:
    """What the trials of a search really reached, and what the search saw of it."""

    true: Curves
    seen: Curves
    epochs: int
    curves: dict[str, np.ndarray] = field(default_factory=dict)  # whole ones

    @property
    def whole(self) -> list[str]:
        """The trials that were trained to their end."""
        return [trial for trial, values in self.seen.items() if len(values) == self.epochs]


def luckiest(found: Searched) -> Network:
    """The highest value at any epoch of any trial."""
    trial = max(found.seen, key=lambda trial: max(found.seen[trial]))
    return trial, int(np.argmax(found.seen[trial]))


def luckiest_whole(found: Searched) -> Network:
    """The trial with the highest value at any epoch, of those trained to their end; its last network."""
    return max(found.whole, key=lambda trial: max(found.seen[trial])), found.epochs - 1


def last_value(found: Searched) -> Network:
    """The highest last value."""
    return max(found.whole, key=lambda trial: found.seen[trial][-1]), found.epochs - 1


def product(found: Searched) -> Network:
    """The product's choice, by the events of such a run."""
    record = RunRecord("accuracy", "max")
    for number, (trial, values) in enumerate(found.seen.items()):
        told = {"trial": trial, "time": 0.0}
        record.apply({"event": "trial_started", **told, "number": number, "config": {}, "seed": 0})
        for epoch, value in enumerate(values, start=1):
            metrics = {"metrics": {"accuracy": value}, "decision": "continue"}
            record.apply({"event": "epoch_reported", **told, "epoch": epoch, **metrics})
        record.apply({"event": "trial_ended", **told, "status": "completed" if trial in found.whole else "stopped"})
    best = record.best_trial()
    worth = best and record.worth_of(best.trial)
    assert best is not None
    assert worth
    return best.trial, worth.epoch - 1


def known(found: Searched) -> Network:
    """The truly best last network of those trained to their end: no rule that sees values can be sure of it."""
    return max(found.whole, key=lambda trial: found.true[trial][-1]), found.epochs - 1


RULES: dict[str, Callable[[Searched], Network]] = {
    "highest value at any epoch": luckiest,
    "the same, of full-length trials": luckiest_whole,
    "highest last value": last_value,
    "what the product chooses": product,
    "truly best full-length trial": known,
}


def searched(job: tuple[str, int, tuple[int, int, int]]) -> Searched:
    """The default search for this many trials of this many epochs, what it sees as noisy as with this many images."""
    task, seed, (trials, epochs, images) = job
    return play(task, seed, epochs, images, trials=trials)


def play(
    task: str, seed: int, epochs: int, images: int, *, trials: int | None = None, total_epochs: float = math.inf
) -> Searched:
    """The default search, its trials run by two workers in turns, until one of the limits is reached."""
    search.EPOCHS = epochs
    strategy = search.Product(MultiFidelityGP(), ASHA(), seed)
    if trials is not None:
        strategy.limit(trials)
    draw = np.random.default_rng([seed, int(task), images])
    true: Curves = {}
    seen: Curves = {}
    curves: dict[str, np.ndarray] = {}
    idle = list(range(WORKERS))
    busy: list[tuple[float, int, str]] = []
    now, trained = 0.0, 0
    while trained < total_epochs:
        for worker in tuple(idle):
            asked = strategy.ask()
            if asked is None:
                break
            trial, unit = asked
            if unit is not None:
                curves[trial] = search.lcbench().learning_curve(task, unit)[:epochs] / 100
                true[trial], seen[trial] = [], []
            idle.remove(worker)
            heapq.heappush(busy, (now + 1, worker, trial))
        if not busy:
            break
        now, worker, trial = heapq.heappop(busy)
        trained += 1
        value = float(curves[trial][len(true[trial])])
        true[trial].append(value)
        seen[trial].append(draw.binomial(images, min(max(value, 0.0), 1.0)) / images)
        if strategy.report(trial, len(seen[trial]), seen[trial][-1]) == "continue":
            heapq.heappush(busy, (now + 1, worker, trial))
        else:
            idle.append(worker)
    begun = [trial for trial, values in seen.items() if values]
    return Searched({trial: true[trial] for trial in begun}, {trial: seen[trial] for trial in begun}, epochs, curves)


def losses(job: tuple[str, int, tuple[int, int, int]]) -> dict[str, float] | None:
    """What each rule loses; None if no trial was trained to its end."""
    found = searched(job)
    if not found.whole:
        return None
    best, reference = max(max(values) for values in found.true.values()), search.lcbench().reference(job[0])
    scale = (reference["best"] - reference["med"]) / 100
    networks = {rule: choose(found) for rule, choose in RULES.items()}
    return {rule: (best - found.true[trial][epoch]) / scale for rule, (trial, epoch) in networks.items()}


def asked_for(
    about: str | None, first_seed: int, of_the_first: str | None = None
) -> tuple[argparse.Namespace, list[str]]:
    """What was asked for on the command line, and the tasks that it means; LCBench is then there for all processes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lcbench", type=Path, default=Path("../shared/lcbench"))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=first_seed, help=of_the_first)
    parser.add_argument("--quick", action="store_true", help="one setting, one task, two seeds: does it run?")
    options = parser.parse_args()
    os.environ["LCBENCH"], os.environ["OMP_NUM_THREADS"] = str(options.lcbench.resolve()), "1"
    return options, load_simulator(os.environ["LCBENCH"]).DEVELOPMENT_TASKS[: 1 if options.quick else None]


def grouped(jobs: list[tuple[str, int, Any]], lost: list[Lost | None]) -> dict[str, list[Lost]]:
    """What was lost by each job, by their tasks; without those that came to nothing."""
    by_task: dict[str, list[Lost]] = {}
    for (task, _, _), one in zip(jobs, lost, strict=True):
        by_task.setdefault(task, []).extend([one] if one is not None else [])
    return by_task


def main() -> None:
    """Measure and print."""
    options, tasks = asked_for(__doc__, 200, "those below 12 served to choose the rule")
    first = options.first_seed
    settings, seeds = (SETTINGS[:1], 2) if options.quick else (SETTINGS, options.seeds)
    results: dict[str, dict[str, list[float]]] = {}
    with multiprocessing.get_context("spawn").Pool() as pool:
        for setting in settings:
            numbers = range(first, first + seeds)
            jobs = [(task, seed_of(task, number), setting) for task in tasks for number in numbers]
            by_task = grouped(jobs, pool.map(losses, jobs, chunksize=2))
            name = "{} trials of {} epochs, {} images".format(*setting)
            print(f"{name}, {sum(map(len, by_task.values()))} searches", flush=True)
            results[name] = {}
            for rule in RULES:
                means = [statistics.fmean(one[rule] for one in found) for found in by_task.values() if found]
                error = statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else 0.0
                results[name][rule] = [round(statistics.fmean(means), 4), round(error, 4)]
                print(f"  {rule:34} {results[name][rule][0]:.4f} ± {error:.4f}", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
