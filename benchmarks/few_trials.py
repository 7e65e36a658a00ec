"""What a search of ten or twenty trials of nine epochs finds, on tasks of four kinds, half of them for the final check.

    python benchmarks/few_trials.py --lcbench DIR [--tasks design|check] [--seeds 10] [--first-seed 0]
        [--kinds lcbench,recorded,surrogate,simulated] [--only default,random] [--exact] [--long]
        [--quick]

DIR holds LCBench's surrogate with its `simulator.py` (`pip install .[bench]`), as for `search.py`; the tasks are those
of `few_trials_worlds.py`, which says what is real of them. Two trials at a time; a search sees noisy values. The regret
is that of the network that the product would choose, in truth: 0 for the best configuration there is, 1 for a random
one in the middle. Each task has seeds of its own, and strategies share them. Intervals are of 90 %, over the tasks'
means; "all" weighs each kind alike. "default" starts from nothing, "portfolio" on LCBench from the configurations that
come with tuner, as a user's function with such hyperparameters does. "random" trains each trial to its end, "random at
equal epochs" as long as the default's epochs of the same search last. "at limits" is the share of a suggestion's
continuous numbers, after the first four trials, that lie within 1 % of a limit; of random ones 2 %. `--long` instead:
the 1,040 epochs of `search.py` on LCBench's 8 development tasks, standard errors over tasks: what such a change costs
searches of many trials. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import choice
import few_trials_worlds
import numpy as np
import search
from few_trials_variants import VARIANTS
from few_trials_worlds import EPOCHS, World, worlds
from peers import seed_of
from small_searches import Strategy, interval, searched

from tuner import ASHA, Budget, HyperOpt, NoEarlyStopping, Random
from tuner.loop.first_configurations import MOST
from tuner.machine.hardware import this_machine
from tuner.search import Problem
from tuner.space import Config

START = 4
LIMIT = 0.01
BUDGETS: dict[str, tuple[int | None, float]] = {
    "10 trials": (10, math.inf),
    "20 trials": (20, math.inf),
    "90 epochs": (None, 90),
}
RANDOM = Strategy(Random(sobol=False), NoEarlyStopping())
STRATEGIES = {
    "default": Strategy(),
    "portfolio": Strategy(known=MOST),
    "random": RANDOM,
    "random at equal epochs": RANDOM,
    "HyperOpt + ASHA(stop)": Strategy(HyperOpt(), ASHA(rule="stop")),
    **{name: Strategy(variant) for name, variant in VARIANTS.items()},
}


@dataclass(frozen=True)
class Found:
    """Regret of a search's winner, the epochs that it took, and the share of its suggestions' numbers at limits."""

    regret: float
    epochs: int
    at_limits: float


def measure(world: World, name: str, seed: int, budget: str) -> Found:
    """One search."""
    trials, epochs = BUDGETS[budget]
    if name == "random at equal epochs":
        trials, epochs = None, default_of(world.name, world.kind, seed, budget).epochs
    strategy = STRATEGIES[name]
    rungs = tuple(strategy.scheduler.rungs(EPOCHS))
    problem = Problem(world.space, seed=seed, trials=trials, max_epochs=EPOCHS, rungs=rungs)
    running = Watched(world, seed)
    learned = known_of(world, seed, budget) if strategy.known else ()
    found = searched(problem, strategy, running, learned=learned, total_epochs=epochs, workers=2)
    trial, epoch = choice.product(found)
    regret = world.regret(found.true[trial][epoch])
    return Found(regret, sum(map(len, found.seen.values())), running.at_limits())


def known_of(world: World, seed: int, budget: str) -> tuple[Config, ...]:
    """What the portfolio suggests; none for tasks that it was made of."""
    if world.kind != "lcbench":
        return ()
    trials, epochs = BUDGETS[budget]
    limits = Budget(trials=trials, total_epochs=None if trials else epochs, max_epochs=EPOCHS)
    return search.portfolio_of(world.space, seed, limits)


@cache
def default_of(world: str, kind: str, seed: int, budget: str) -> Found:
    """What the default does, which others are compared with."""
    return measure(next(one for one in worlds() if (one.name, one.kind) == (world, kind)), "default", seed, budget)


class Watched:
    """The trials of one search, whose suggestions are looked at."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._running = world, world.begin(seed)
        self._asked: list[Config] = []
        self.true, self.seen = self._running.true, self._running.seen
        self.step = self._running.step

    def begin(self, trial: str, config: Config) -> Config:
        """A new one."""
        self._asked.append(config)
        return self._running.begin(trial, config)

    def at_limits(self) -> float:
        """Share of the continuous numbers; nan where there is no suggestion."""
        space = self._world.space
        units = np.array([space.encode(config) for config in self._asked[START:]])
        continuous = [index for index, domain in enumerate(space.dimensions.values()) if math.isinf(domain.size)]
        if not len(units):
            return math.nan
        values = units[:, continuous][~np.isnan(units[:, continuous])]
        return float(((values < LIMIT) | (values > 1 - LIMIT)).mean())


Results = dict[str, list[Found]]  # by task, a search for each seed


def mean_and_interval(values: dict[str, list[float]]) -> tuple[float, float]:
    """Over the tasks' means."""
    means = [statistics.fmean(one) for one in values.values()]
    return statistics.fmean(means), interval(means)


def row(found: dict[str, Results], first: dict[str, Results]) -> dict[str, list[float]]:
    """For each kind, and for all: regret, its interval, the difference from the first strategy, its interval."""
    cells = {}
    for kind, results in found.items():
        regrets = {task: [one.regret for one in rows] for task, rows in results.items()}
        less = {
            task: [a.regret - b.regret for a, b in zip(rows, first[kind][task], strict=True)]
            for task, rows in results.items()
        }
        cells[kind] = [*mean_and_interval(regrets), *mean_and_interval(less)]
    together = np.array(list(cells.values()))
    means, halves = together[:, ::2].mean(axis=0), np.sqrt((together[:, 1::2] ** 2).sum(axis=0)) / len(together)
    cells["all"] = [means[0], halves[0], means[1], halves[1]]
    return {kind: [round(float(value), 4) for value in values] for kind, values in cells.items()}


def told(name: str, cells: dict[str, list[float]], found: dict[str, Results]) -> str:
    """A line of the table."""
    searches = [one for results in found.values() for rows in results.values() for one in rows]
    free = [one for kind, results in found.items() if kind != "recorded" for rows in results.values() for one in rows]
    limits = statistics.fmean([one.at_limits for one in free if not math.isnan(one.at_limits)] or [math.nan])
    parts = "".join(f" {regret:6.3f} {less:+.3f} ±{half:.3f} |" for regret, _, less, half in cells.values())
    return f"{name:25}|{parts} {statistics.fmean(one.epochs for one in searches):5.0f} {100 * limits:4.0f} %"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lcbench", type=Path, default=Path("../shared/lcbench"))
    parser.add_argument("--tasks", choices=["design", "check"], default="design")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", type=lambda text: text.split(","))
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STRATEGIES))
    parser.add_argument("--budgets", type=lambda text: text.split(","), default=list(BUDGETS))
    parser.add_argument("--exact", action="store_true", help="LCBench's values without noise")
    parser.add_argument("--long", action="store_true", help="1,040 epochs on LCBench")
    parser.add_argument("--quick", action="store_true", help="one task of each kind, two seeds: does it run?")
    options = parser.parse_args()
    os.environ["LCBENCH"], os.environ["OMP_NUM_THREADS"] = str(options.lcbench.resolve()), "1"
    if options.exact:
        few_trials_worlds.IMAGES = 10**9
    if options.quick:
        options.seeds, options.only, options.budgets = 2, ["default", "random"], ["10 trials"]
    if options.long:
        print(json.dumps(long_searches(options)))
        return
    kinds: dict[str, list[World]] = defaultdict(list)
    for world in worlds():
        wanted = world.design == (options.tasks == "design") and world.kind in (options.kinds or [world.kind])
        if wanted and not (options.quick and kinds[world.kind]):
            kinds[world.kind].append(world)
    kinds = {kind: found for kind, found in kinds.items() if found}
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "hyperopt", "onnxruntime"))
    print(f"{this_machine().cpus} CPUs, Python {platform.python_version()}, {versions}; tasks for {options.tasks}")
    print(", ".join(f"{kind}: {len(found)} tasks" for kind, found in kinds.items()), f"x {options.seeds} seeds")
    found = {budget: measured(options, kinds, budget) for budget in options.budgets}
    print(json.dumps(found).replace("NaN", "null"))  # an interval of a single task, with --quick


def long_searches(options: argparse.Namespace) -> dict[str, list[float]]:
    """For each strategy the final regret of 1,040 epochs, its error, the difference from the first, its error."""
    tasks, rows = search.lcbench().DEVELOPMENT_TASKS, {}
    first = None
    for name in options.only:
        strategy = STRATEGIES[name]
        numbers = range(options.first_seed, options.first_seed + options.seeds)
        products = [
            (search.Product(strategy.search, strategy.scheduler, seed_of(task, n)), task)
            for task in tasks
            for n in numbers
        ]
        found = np.array([search.lcbench().simulate(product, task)[-1] for product, task in products])
        first = found if first is None else first
        rows[name] = [*search.clustered(found, len(tasks)), *search.clustered(found - first, len(tasks))]
        print(
            f"{name:25} {rows[name][0]:.3f} ±{rows[name][1]:.3f}  {rows[name][2]:+.3f} ±{rows[name][3]:.3f}", flush=True
        )
    return rows


def measured(
    options: argparse.Namespace, kinds: dict[str, list[World]], budget: str
) -> dict[str, dict[str, list[float]]]:
    """All strategies with one budget: a line for each."""
    print(f"{budget:25}|{'|'.join(f'{kind:^22}' for kind in [*kinds, 'all'])}| epochs, at limits; seconds a search")
    rows: dict[str, dict[str, list[float]]] = {}
    first: dict[str, Results] = {}
    for name in options.only:
        began = time.process_time()
        found = {
            kind: {world.name: searches(world, name, options, budget) for world in some} for kind, some in kinds.items()
        }
        first = first or found
        rows[name] = row(found, first)
        seconds = (time.process_time() - began) / (options.seeds * sum(map(len, kinds.values())))
        print(f"{told(name, rows[name], found)} {seconds:6.3f}", flush=True)
    return rows


def searches(world: World, name: str, options: argparse.Namespace, budget: str) -> list[Found]:
    """One strategy in one world."""
    seeds = [seed_of(f"{world.kind} {world.name}", options.first_seed + number) for number in range(options.seeds)]
    if name == "default":
        return [default_of(world.name, world.kind, seed, budget) for seed in seeds]
    return [measure(world, name, seed, budget) for seed in seeds]


if __name__ == "__main__":
    main()
