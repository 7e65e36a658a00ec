"""The gain of further seeds for choosing a search's winner by noisy values, on LCBench's learning curves.

    python benchmarks/confirming.py --lcbench DIR [--seeds 12] [--first-seed 700] [--quick]

Searches and noise are those of `choice.py`: the default search, two trials at a time, whose values are the share of so
many images that are right. Then the configurations that the product names are trained again (new values are drawn), and
the product chooses: it gets all trials as events. `tuner confirm` gets 1, 3 and 5 further seeds for the best 2 or 3; a
race, as `Study(repeats=3)` and `repeats=5` declare, is run once the search is over. Seeds also change what a network is
worth where a spread is given, by a normal variable with that standard deviation of the accuracy. The loss is how far
the chosen configuration's curve ends below the best one's of the full-length trials, as a share of what lies between a
median random configuration and the best one that there is. Errors are standard errors over tasks.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
from functools import partial
from typing import Any

import numpy as np
import search
from choice import Searched, asked_for, grouped, searched

from tuner.history.records import RunRecord
from tuner.loop.confirming import confirmation
from tuner.loop.racing import next_to_repeat

SETTINGS = [(10, 9, 300, 0.0), (10, 9, 1000, 0.0), (20, 9, 1000, 0.0), (10, 9, 1000, 0.005), (20, 9, 1000, 0.005)]
Setting = tuple[int, int, int, float]
CONFIRMS = [(2, 1), (2, 3), (3, 3), (3, 5)]
RACES = [2, 3, 5]


class Told:
    """A run's record, with the trials of a search and others that repeat them."""

    def __init__(self, found: Searched, images: int, spread: float, draw: np.random.Generator) -> None:
        self._found, self._images, self._spread, self._draw = found, images, spread, draw
        self.record = RunRecord("accuracy", "max")
        for trial, values in found.seen.items():
            shift = self._shift()
            self._tell(trial, [value + shift for value in values], whole=trial in found.whole)

    def repeat(self, first: str) -> None:
        """Train a trial's configuration again, to the end."""
        true = np.asarray(self._found.curves[first][: self._found.epochs]) + self._shift()
        seen = self._draw.binomial(self._images, np.clip(true, 0, 1)) / self._images
        self._tell(f"{len(self.record.trials):05d}", list(map(float, seen)), whole=True, repeats=first)

    def lost(self, scale: float) -> float:
        """By the choice that the product makes now."""
        best = self.record.best_trial()
        assert best is not None
        chosen = self._found.curves[best.repeats or best.trial][self._found.epochs - 1]
        return (max(self._found.true[trial][-1] for trial in self._found.whole) - float(chosen)) / scale

    def _shift(self) -> float:
        return float(self._draw.normal(0, self._spread)) if self._spread else 0.0

    def _tell(self, trial: str, values: list[float], *, whole: bool, **more: Any) -> None:
        told = {"trial": trial, "time": 0.0}
        number = len(self.record.trials)
        self.record.apply({"event": "trial_started", **told, "number": number, "config": {}, "seed": number, **more})
        for epoch, value in enumerate(values, start=1):
            metrics = {"metrics": {"accuracy": value}, "decision": "continue"}
            self.record.apply({"event": "epoch_reported", **told, "epoch": epoch, **metrics})
        self.record.apply({"event": "trial_ended", **told, "status": "completed" if whole else "stopped"})


def losses(job: tuple[str, int, Setting]) -> dict[str, tuple[float, float]] | None:
    """What each way loses, and the epochs that it trains beside the search; None without a full-length trial."""
    task, seed, (trials, epochs, images, spread) = job
    found = searched((task, seed, (trials, epochs, images)))
    if not found.whole:
        return None
    reference = search.lcbench().reference(task)
    scale = (reference["best"] - reference["med"]) / 100
    begin = partial(Told, found, images, spread)
    results: dict[str, tuple[float, float]] = {}
    told = begin(np.random.default_rng([seed, int(task), 1]))
    results["one training each"] = told.lost(scale), 0
    for top, seeds in CONFIRMS:
        told = begin(np.random.default_rng([seed, int(task), 1]))
        chosen = confirmation(told.record, epochs, min(top, len(found.seen)), seeds)
        for first in chosen.names * seeds:
            told.repeat(first)
        results[f"confirm --top {top} --seeds {seeds}"] = told.lost(scale), chosen.epochs
    for most in RACES:
        told = begin(np.random.default_rng([seed, int(task), 1]))
        trained = 0
        while (leading := next_to_repeat(told.record, most)) is not None:
            told.repeat(leading.trial)
            trained += epochs
        results[f"repeats={most}"] = told.lost(scale), trained
    return results


def main() -> None:
    """Measure and print."""
    options, tasks = asked_for(__doc__, 700, "those below 12 served to choose the rules")
    settings, seeds = (SETTINGS[:1], 2) if options.quick else (SETTINGS, options.seeds)
    results: dict[str, dict[str, list[float]]] = {}
    with multiprocessing.get_context("spawn").Pool() as pool:
        for setting in settings:
            drawn = range(options.first_seed, options.first_seed + seeds)
            jobs = [(task, seed, setting) for task in tasks for seed in drawn]
            by_task = grouped(jobs, pool.map(losses, jobs, chunksize=2))
            name = "{} trials of {} epochs, {} images, spread {}".format(*setting)
            print(f"{name}, {sum(map(len, by_task.values()))} searches", flush=True)
            results[name] = {way: told(by_task, way) for way in ways(by_task)}
            for way, (mean, error, epochs) in results[name].items():
                print(f"  {way:28} {mean:.4f} ± {error:.4f}   {epochs:5.1f} epochs more", flush=True)
    print(json.dumps(results))


def ways(by_task: dict[str, list[dict[str, tuple[float, float]]]]) -> list[str]:
    """The ways that were tried, in their order."""
    return list(dict.fromkeys(way for found in by_task.values() for one in found for way in one))


def told(by_task: dict[str, list[dict[str, tuple[float, float]]]], way: str) -> list[float]:
    """Mean loss over tasks, its standard error, and the mean of the epochs."""
    lost = [statistics.fmean(one[way][0] for one in found if way in one) for found in by_task.values() if found]
    more = statistics.fmean(one[way][1] for found in by_task.values() for one in found if way in one)
    error = statistics.stdev(lost) / len(lost) ** 0.5 if len(lost) > 1 else 0.0
    return [round(statistics.fmean(lost), 4), round(error, 4), round(more, 1)]


if __name__ == "__main__":
    main()
