"""Searches with few trials on small tasks that were really trained: the value of earlier knowledge.

    python benchmarks/small_searches.py benchmarks/curves.jsonl.xz [--tasks design|check|all|NAME,…] [--seeds 40]
        [--trials 10 | --total-epochs 90] [--only default,portfolio] [--real --data-dir DIR --cache DIR] [--workers 2]

The table is what `record.py` recorded. A search either trains its trials for real (`--real`), or has no other
configurations than the recorded ones: each suggestion is replaced by the nearest of them that it hasn't had. So nothing
is made up, but with a few dozen of them ten trials are a good part of all, and what a search algorithm suggests counts
for little: it serves to choose how many trials a portfolio gets, and what is claimed is measured for real.

The portfolio that a search may use is made, kernel and all, without the studies on the same data set. Its winner is
what the product chooses; the regret is that of the winner's network on the test images: 0 is the best recorded
configuration, 1 a random one in the middle; for a task of which nothing is recorded (`digits-resnet18`), it is the
share of test images that are wrong. Errors are clustered by task and seed: intervals of 90 % are over tasks'
means where there are several tasks, else over seeds. Each task has seeds of its own. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import multiprocessing
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import choice
import numpy as np
import portfolio
import small_tasks
from peers import seed_of
from photo_tasks import RECORDED, SIGNS
from scipy import stats
from small_tasks import EPOCHS, UNRECORDED, Task

from tuner import ASHA, HyperOpt, MultiFidelityGP, NoEarlyStopping, Random
from tuner.loop.first_configurations import BETTER
from tuner.schedule import Decision, Scheduler
from tuner.search import Problem, Proposals, SearchAlgorithm
from tuner.search.history import greedy
from tuner.search.points import Features
from tuner.search.portfolio import Portfolio, of_defaults, read, suggested_by_portfolio
from tuner.space import Config
from tuner.trial.hyperparameters import HYPERPARAMETERS

TRAINED = (*RECORDED, *UNRECORDED, *SIGNS)
DEFAULTS = {name: row.default for name, row in HYPERPARAMETERS.items()}


@dataclass(frozen=True)
class Strategy:
    """A way to search: `known` configurations of the portfolio come first."""

    search: SearchAlgorithm = field(default_factory=MultiFidelityGP)
    scheduler: Scheduler = field(default_factory=ASHA)
    known: int = 0
    trusted: bool = True
    alike: bool = False  # whether only studies whose trials started from the same kind of weights count
    fixed: Config | None = None  # the only configuration that is trained, without a search
    defaults: bool = False  # whether the trainer's defaults come first


SENSIBLE = {"optimizer": "adam", "lr": 1e-3, "batch_size": 32, "schedule": "cosine", "weight_decay": 1e-6}
SENSIBLE |= {"label_smoothing": 0.0, "dropout": 0.0, "mixup": 0.0}

STRATEGIES = {
    "default": Strategy(),
    "defaults_first": Strategy(known=1, defaults=True),
    "defaults_portfolio": Strategy(known=5, defaults=True),
    "portfolio": Strategy(known=5),
    "portfolio_alike": Strategy(known=5, alike=True),
    "portfolio1": Strategy(known=1),
    "portfolio2": Strategy(known=2),
    "portfolio3": Strategy(known=3),
    "portfolio_untrusted": Strategy(known=5, trusted=False),
    "portfolio3_untrusted": Strategy(known=3, trusted=False),
    "portfolio10": Strategy(known=10),
    "hyperopt_asha": Strategy(HyperOpt(), ASHA(rule="stop")),
    "random": Strategy(Random(sobol=False), NoEarlyStopping()),
    "sensible": Strategy(scheduler=NoEarlyStopping(), fixed=SENSIBLE),
    "portfolio_random": Strategy(Random(sobol=False), NoEarlyStopping(), known=5),
}


@cache
def table() -> portfolio.Rows:
    """The recorded trials."""
    return portfolio.rows_of(Path(os.environ["CURVES"]))


def task_of(name: str) -> Task:
    """The task of that name."""
    return next(task for task in TRAINED if task.name == name)


@cache
def beside(source: str) -> Portfolio:
    """What would be shipped without a data set."""
    path = Path(os.environ["PORTFOLIOS"]) / f"{source}.json"
    return read(json.loads(path.read_text()))


def write_portfolios(folder: Path, tasks: Sequence[str]) -> None:
    """One without the data set of each of the tasks, where they aren't there yet: each takes minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted({task_of(name).source for name in tasks}):
        if not (folder / f"{source}.json").exists():
            others = {task.name: [] if task.source == source else table()[task.name] for task in RECORDED}
            told = portfolio.portfolio(others, portfolio.likeliest(others))
            (folder / f"{source}.json").write_text(json.dumps(told))


@cache
def beginning(name: str, seed: int, top: int, real: bool, alike: bool, defaults: bool) -> tuple[Config, ...]:
    """The portfolio's configurations for a task; of the recorded ones unless trials are trained for real."""
    task = task_of(name)
    known, settings = beside(task.source), portfolio.SETS[id(task.space)]
    kinds = {portfolio.kind(task)} if alike or portfolio.kind(task) == "random" else {"random", "weights"}
    if real:
        problem = Problem(task.space, seed=seed)
        first = of_defaults(problem, DEFAULTS | BETTER) if defaults else ()
        more = top - len(first)
        return first + suggested_by_portfolio(problem, kinds, {**DEFAULTS, **settings}, more, known, first=first)
    recorded = [row["config"] for row in table()[name]]
    expected = known.expected([{**DEFAULTS, **settings, **config} for config in recorded], kinds)
    return tuple(recorded[index] for index in greedy(np.clip(expected, 0, 1), top))


class Running(Protocol):
    """The trials of one search: what they reached in truth and what was seen of it, by trial."""

    true: dict[str, list[float]]
    seen: dict[str, list[float]]

    def begin(self, trial: str, config: Config) -> Config:
        """A new one; the configuration that it really has is returned."""

    def step(self, trial: str) -> float | None:
        """The value of its next epoch; None if it diverged."""


class Trials:
    """The trials of one search, trained for real or recorded."""

    def __init__(self, task: Task, seed: int, real: bool) -> None:
        self._task, self._seed, self._real = task, seed, real
        self._rest = list(table().get(task.name, []))
        self._features = Features(task.space)
        self._made: dict[str, Any] = {}
        self.true: dict[str, list[float]] = {}
        self.seen: dict[str, list[float]] = {}

    def begin(self, trial: str, config: Config) -> Config:
        """A new one, of this configuration or the nearest recorded one, which is returned."""
        self.true[trial], self.seen[trial] = [], []
        if self._real:
            self._made[trial] = self._trainer(config, trial)
            return config
        points = self._features.points(
            np.array([self._task.space.encode(one) for one in [config, *(row["config"] for row in self._rest)]])
        )
        self._made[trial] = row = self._rest.pop(int(np.argmin(((points[1:] - points[0]) ** 2).sum(1))))
        return row["config"]  # type: ignore[no-any-return]

    def step(self, trial: str) -> float | None:
        """Its next epoch's validation accuracy; None if it diverged."""
        made = self._made[trial]
        if self._real:
            from tuner.errors import TrialError

            try:
                self.seen[trial].append(made.run_epoch().validation["accuracy"])
            except TrialError:
                return None
            self.true[trial].append(made.evaluate(made.splits.test)["accuracy"])
        else:
            epoch = len(self.seen[trial])
            if made["val"][epoch] is None:
                return None
            self.seen[trial].append(made["val"][epoch])
            self.true[trial].append(made["test"][epoch])
        return self.seen[trial][-1]

    def _trainer(self, config: Config, trial: str) -> Any:
        from tuner.train import Trainer

        return Trainer(self._task.trial(small_tasks.CACHE), config, epochs=EPOCHS, seed=1000 * self._seed + int(trial))


def play(
    task: Task, strategy: Strategy, seed: int, *, trials: int | None, total_epochs: float, real: bool, workers: int
) -> choice.Searched:
    """One search, its trials run by some workers in turns, until one of the limits is reached."""
    problem = Problem(
        task.space, seed=seed, trials=trials, max_epochs=EPOCHS, rungs=tuple(strategy.scheduler.rungs(EPOCHS))
    )
    if strategy.fixed is not None:
        return searched(problem, strategy, Trials(task, seed, real), total_epochs=EPOCHS, workers=1)
    learned = (
        beginning(task.name, seed, strategy.known, real, strategy.alike, strategy.defaults) if strategy.known else ()
    )
    running = Trials(task, seed, real)
    return searched(problem, strategy, running, learned=learned, total_epochs=total_epochs, workers=workers)


def searched(
    problem: Problem,
    strategy: Strategy,
    running: Running,
    *,
    learned: Sequence[Config] = (),
    total_epochs: float,
    workers: int,
) -> choice.Searched:
    """One search of whatever trials."""
    proposals = Proposals(problem, strategy.search.build(problem), learned=learned)
    stopper = strategy.scheduler.build(mode="max", max_epochs=EPOCHS, can_pause=True, trials=problem.trials)
    idle, busy = list(range(workers)), []
    now = trained = started = 0
    while trained < total_epochs:
        for worker in tuple(idle):
            trial = stopper.resumable()
            if trial is None:
                config = strategy.fixed or proposals.propose(started)
                if config is None:
                    break
                trial = f"{started:05d}"
                config = running.begin(trial, config)
                proposals.adopt(started, config)
                started += 1
                stopper.start(trial)
                if strategy.trusted and proposals.is_learned(config):
                    stopper.trust(trial)
            idle.remove(worker)
            heapq.heappush(busy, (now + 1, worker, trial))
        if not busy:
            break
        now, worker, trial = heapq.heappop(busy)
        trained += 1
        value = running.step(trial)
        epoch = len(running.seen[trial])
        decision = Decision.STOP
        if value is not None:
            proposals.observe(int(trial), epoch, value)
            decision = stopper.report(trial, epoch, value)
        if value is None or epoch >= EPOCHS or decision is Decision.STOP:
            proposals.end(int(trial), "failed" if value is None else "completed" if epoch >= EPOCHS else "stopped")
            stopper.end(trial)
        if value is not None and epoch < EPOCHS and decision is Decision.CONTINUE:
            heapq.heappush(busy, (now + 1, worker, trial))
        else:
            idle.append(worker)
    begun = [trial for trial, values in running.seen.items() if values]
    return choice.Searched({t: running.true[t] for t in begun}, {t: running.seen[t] for t in begun}, EPOCHS)


def outcome(job: tuple[str, str, int, dict[str, Any]]) -> tuple[float, int]:
    """Regret of the winner's network, and the epochs that it took."""
    name, strategy, seed, limits = job
    if limits["real"]:
        import torch

        torch.set_num_threads(1)
    found = play(task_of(name), STRATEGIES[strategy], seed, **limits)
    trial, epoch = choice.product(found)
    best, middle = portfolio.scale(table()[name]) if name in table() else (1.0, 0.0)
    return (best - found.true[trial][epoch]) / (best - middle), sum(map(len, found.seen.values()))


def interval(values: Sequence[float]) -> float:
    """Half of the 90 % interval of a mean."""
    if len(values) < 2:
        return math.nan
    return float(stats.t.ppf(0.95, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--tasks", default="design")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--total-epochs", type=float, default=math.inf)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STRATEGIES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--cache", type=Path, default=small_tasks.CACHE)
    parser.add_argument("--portfolios", type=Path, help="a folder that keeps those without a data set")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    os.environ["CURVES"], os.environ["OMP_NUM_THREADS"] = str(options.table.resolve()), "1"
    small_tasks.DATA, small_tasks.CACHE = options.data_dir, options.cache
    os.environ["PORTFOLIOS"] = str(options.portfolios or options.cache / "portfolios")
    trials = options.trials or (None if math.isfinite(options.total_epochs) else 10)
    limits = {"trials": trials, "total_epochs": options.total_epochs, "real": options.real, "workers": options.workers}
    tasks = [t.name for t in RECORDED if options.tasks in ("all", "design" if t.design else "check")]
    tasks = tasks or [t.name for t in TRAINED if t.name in options.tasks.split(",")]
    write_portfolios(Path(os.environ["PORTFOLIOS"]), tasks)
    results: dict[str, dict[str, list[tuple[float, int]]]] = {}
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for name in options.only:
            jobs = [
                (task, name, seed_of(task, options.first_seed + n), limits)
                for task in tasks
                for n in range(options.seeds)
            ]
            found = pool.map(outcome, jobs, chunksize=1)
            results[name] = {task: found[n * options.seeds : (n + 1) * options.seeds] for n, task in enumerate(tasks)}
            print(told(name, results), flush=True)
    print(json.dumps(results))


def told(name: str, results: dict[str, dict[str, list[tuple[float, int]]]]) -> str:
    """A line: mean regret with its interval, the difference from the first strategy, epochs; then each task's."""
    found, first = results[name], results[next(iter(results))]
    regrets = {task: [regret for regret, _ in rows] for task, rows in found.items()}
    less = {task: [a - b for (a, _), (b, _) in zip(rows, first[task], strict=True)] for task, rows in found.items()}
    epochs = statistics.fmean(used for rows in found.values() for _, used in rows)
    by_task = "  ".join(f"{task} {statistics.fmean(values):.3f}" for task, values in regrets.items())
    return f"{name:20} {clustered(regrets)}  beside the first {clustered(less)}  {epochs:5.1f} epochs   {by_task}"


def clustered(values: dict[str, list[float]]) -> str:
    """Mean and 90 % interval; of several tasks over these tasks, of one over its seeds."""
    means = [statistics.fmean(one) for one in values.values()]
    half = interval(means if len(means) > 1 else next(iter(values.values())))
    return f"{statistics.fmean(means):+.3f} ± {half:.3f}"


if __name__ == "__main__":
    main()
