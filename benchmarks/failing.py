"""Searches of spaces in which a part of the configurations fails: how many trials fail, and the best that survives.

    python benchmarks/failing.py [--lcbench DIR] [--tasks design|check] [--seeds 4] [--first-seed 0] [--whole]
        [--kinds divergence,memory,both] [--shares 10,20,40] [--only default,HyperOpt] [--quick]

40 trials of 9 epochs, two at a time, early stopping by ASHA as each search algorithm has it elsewhere, or none with
`--whole`. Four made-up functions of 2 to 6 hyperparameters, which get better until they fail, and recorded tasks: the 8
of LCBench's surrogate (DIR, by default `../shared/lcbench`; `pip install .[bench]`), or where that isn't there the
models of the small tasks that come with tuner. "divergence": a high learning rate with a high momentum; a trial fails
after some good epochs, after the more the nearer to the border it is. "memory": large batches and networks; a trial
fails before its first epoch, or near the border after some. The probability of a failure rises from 0 to 1 in a strip
across the border, 8 % of the space wide. "both" has two such corners. 10, 20 or 40 % of the space fail.

"failed" is the number of failed trials. "regret" is that of the network that the product would choose, in truth: 0 for
the best of 2,000 random configurations of which most trials survive, 1 for the median of these. Each task has seeds of
its own, which the strategies share; ± is half of a 90 % interval over the tasks' means, also of the differences from
HyperOpt. Choices were made with `--tasks design`; `check` has other functions and tasks. The last line is one JSON
object. One process; about four minutes on a core.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import choice as choosing
import few_trials_worlds as worlds
import numpy as np
import search
import small_tasks
from few_trials_worlds import EPOCHS, Simulated, World
from peers import seed_of
from small_searches import Strategy, interval, searched

from tuner import (
    ASHA,
    BOHB,
    HyperOpt,
    MultiFidelityGP,
    NoEarlyStopping,
    Random,
    choice,
    lograndint,
    loguniform,
    randint,
    uniform,
)
from tuner.machine.hardware import this_machine
from tuner.search import Problem
from tuner.search.base import Floats
from tuner.space import Config, Space

TRIALS = 40
DRAWS = 2000  # random configurations that say where borders lie, and what is good
STRIP = 0.08  # share of the space, in the order of danger, in which a failure is possible but not certain
KINDS = {"divergence": ("divergence",), "memory": ("memory",), "both": ("divergence", "memory")}
STRATEGIES = {
    "HyperOpt": Strategy(HyperOpt(), ASHA(rule="stop")),
    "default": Strategy(MultiFidelityGP(), ASHA()),
    "BOHB": Strategy(BOHB(), ASHA()),
    "random": Strategy(Random(sobol=False), ASHA(rule="stop")),
}
Danger = Callable[[Config], float]


@dataclass(frozen=True)
class Task:
    """A function or recorded task, and for each kind of failure how near a configuration is to it."""

    world: World
    dangers: dict[str, Danger]

    @cached_property
    def sample(self) -> tuple[list[Config], Floats]:
        """Random configurations, and what they truly reach: [DRAWS]."""
        draw = np.random.default_rng(1)
        configs = [self.world.space.sample(draw) for _ in range(DRAWS)]
        return configs, np.array([self.world.curve(config, np.random.default_rng(0))[-1] for config in configs])

    @cached_property
    def ordered(self) -> dict[str, Floats]:
        """For each kind of failure the random configurations' dangers in ascending order."""
        return {kind: np.sort([danger(config) for config in self.sample[0]]) for kind, danger in self.dangers.items()}

    def share_below(self, kind: str, config: Config) -> float:
        """The share of the space that is less in danger."""
        return float(np.searchsorted(self.ordered[kind], self.dangers[kind](config))) / DRAWS


@dataclass(frozen=True)
class Region:
    """The part of a task's space in which trials fail: this share of it, by these kinds of failure."""

    task: Task
    kinds: tuple[str, ...]
    share: float

    @cached_property
    def border(self) -> float:
        """From where on in the order of danger trials fail, such that the share of the space fails in all."""
        each = 1 - (1 - self.share) ** (1 / len(self.kinds))
        return 1 - each

    def beyond(self, kind: str, config: Config) -> float:
        """How far beyond the border, in shares of the space; negative before it."""
        return self.task.share_below(kind, config) - self.border

    def epochs_until_failure(self, config: Config, luck: np.random.Generator) -> float:
        """After how many epochs a trial fails, 0 for before its first; infinite if it doesn't."""
        found = math.inf
        for kind in self.kinds:
            beyond, drawn, late = self.beyond(kind, config), luck.random(), luck.random()
            if drawn < 0.5 + beyond / STRIP:
                depth = max(0.0, beyond / self.share) + 0.3 * late  # 0 at the border
                first = 1 if kind == "divergence" else 0
                found = min(found, first + max(0, round((EPOCHS - 1 - first) * (1 - 2 * depth))))
        return found

    def survives(self, config: Config) -> bool:
        """Whether most trials of the configuration do."""
        return all(self.beyond(kind, config) < 0 for kind in self.kinds)

    @cached_property
    def limits(self) -> tuple[float, float]:
        """What the best of the surviving random configurations reaches, and one in the middle."""
        configs, ends = self.task.sample
        surviving = ends[[self.survives(config) for config in configs]]
        return float(surviving.max()), float(np.median(surviving))


class Failing(Simulated):
    """The trials of one search, of which some fail."""

    def __init__(self, region: Region, seed: int) -> None:
        super().__init__(region.task.world, seed)
        self._region, self._seed = region, seed
        self._until: dict[str, float] = {}
        self.failed: set[str] = set()

    def begin(self, trial: str, config: Config) -> Config:
        """A new one."""
        luck = np.random.default_rng([self._seed, int(trial), 9])
        self._until[trial] = self._region.epochs_until_failure(config, luck)
        return super().begin(trial, config)

    def step(self, trial: str) -> float | None:  # type: ignore[override]
        """The value of its next epoch; None if it fails."""
        if len(self.seen[trial]) >= self._until[trial]:
            self.failed.add(trial)
            return None
        return super().step(trial)


@dataclass(frozen=True)
class Found:
    """How many trials of a search failed, and the regret of its winner."""

    failed: int
    regret: float


def measure(region: Region, strategy: Strategy, seed: int) -> Found:
    """One search."""
    rungs = tuple(strategy.scheduler.rungs(EPOCHS))
    space = region.task.world.space
    problem = Problem(space, seed=seed, trials=TRIALS, max_epochs=EPOCHS, rungs=rungs)
    running = Failing(region, seed)
    found = searched(problem, strategy, running, total_epochs=math.inf, workers=2)
    true, seen = ({t: c for t, c in curves.items() if t not in running.failed} for curves in (found.true, found.seen))
    trial, epoch = choosing.product(choosing.Searched(true, seen, EPOCHS))
    best, middle = region.limits
    return Found(len(running.failed), (best - true[trial][epoch]) / (best - middle))


# Tasks


def effective_rate(config: Config) -> float:
    """How fast a network learns: SGD's momentum multiplies the learning rate."""
    rate = config.get("learning_rate", config.get("lr"))
    return float(math.log(rate) - math.log(1 - config.get("momentum", 0.0)))


def lcbench_memory(config: Config) -> float:
    """Activations of a fully connected network, and its weights."""
    layers, width = config["num_layers"], config["max_units"]
    return math.log(layers * width * config["batch_size"] + layers * width**2 / 10)


def small_memory(config: Config) -> float:
    """Activations of a convolutional network; Adam keeps two further copies of its weights."""
    return float(math.log(config["batch_size"] + (30 if config["optimizer"] != "sgd" else 0)) + 0.3 * config["dropout"])


MADE_UP: dict[str, tuple[Space, Danger, Danger]] = {
    "two": (
        Space({"lr": loguniform(1e-4, 1.0), "batch_size": lograndint(8, 513)}),
        effective_rate,
        lambda config: math.log(config["batch_size"]),
    ),
    "corner": (
        Space({"lr": loguniform(1e-4, 1.0), "momentum": uniform(0.5, 0.99), "width": lograndint(16, 513)}),
        effective_rate,
        lambda config: math.log(config["width"]),
    ),
    "optimizers": (
        Space(
            {
                "optimizer": choice(["adam", "sgd"]),
                "lr": loguniform(1e-5, 1e-1),
                "momentum": uniform(0.5, 0.99).when(optimizer="sgd"),
                "beta": uniform(0.5, 0.999).when(optimizer="adam"),
                "batch_size": lograndint(8, 513),
            }
        ),
        lambda config: effective_rate(config) + (2.5 if config["optimizer"] == "adam" else 0.0),
        lambda config: math.log(config["batch_size"]) + (0.5 if config["optimizer"] == "adam" else 0.0),
    ),
    "networks": (
        Space(
            {
                "network": choice(["narrow", "wide", "deep"]),
                "lr": loguniform(1e-4, 1.0),
                "image_size": randint(32, 257),
                "batch_size": choice([8, 16, 32, 64, 128, 256]),
                "dropout": uniform(0.0, 0.7),
                "warm_up": uniform(0.0, 0.5),
            }
        ),
        lambda config: math.log(config["lr"]) - 3 * config["warm_up"] + (1.0 if config["network"] == "deep" else 0.0),
        lambda config: (
            2 * math.log(config["image_size"])
            + math.log(config["batch_size"])
            + {"narrow": 0.0, "wide": 1.2, "deep": 0.8}[config["network"]]
        ),
    ),
}


def made_up(name: str, *, design: bool) -> Task:
    """A bowl in most of the dimensions, whose bottom lies anywhere, and which falls towards what is in danger."""
    space, divergence, memory = MADE_UP[name]
    draw = np.random.default_rng([list(MADE_UP).index(name), 0 if design else 1, 10])
    width = len(space.dimensions)
    bottom, weight = draw.beta(1.5, 1.5, width), draw.exponential(0.5, width)
    lures = draw.uniform(0.5, 2.5, 2)
    top, span = draw.uniform(0.75, 0.97), draw.uniform(0.4, 0.7)
    spread = {}
    for kind, danger in (("divergence", divergence), ("memory", memory)):
        dangers = [danger(space.sample(draw)) for _ in range(DRAWS)]
        spread[kind] = (min(dangers), max(dangers))

    def curve(config: Config, luck: np.random.Generator) -> Floats:
        away = np.nan_to_num(np.array(space.encode(config)) - bottom)
        height = float((weight * away**2).sum())
        for (low, high), danger, lure in zip(spread.values(), (divergence, memory), lures, strict=True):
            height += lure * max(0.0, 1 - (danger(config) - low) / (high - low)) ** 1.5
        end = top - span * (1 - math.exp(-height))
        risen = 1 - np.exp(-0.5 * np.arange(1, EPOCHS + 1))
        return np.asarray(end - (end - 0.1) * (1 - risen) * 0.6 + 0.003 * luck.standard_normal())

    world = World(f"{name}{'' if design else '*'}", "made up", design, space, 1000, curve, lambda: (top, top - span))
    return Task(world, {"divergence": divergence, "memory": memory})


@cache
def tasks(*, design: bool, lcbench: bool) -> tuple[Task, ...]:
    """Those for design or for the check: made up, and recorded."""
    found = [made_up(name, design=design) for name in MADE_UP]
    if lcbench:
        names = search.lcbench().DEVELOPMENT_TASKS if design else worlds.CHECKED
        dangers = {"divergence": effective_rate, "memory": lcbench_memory}
        return (*found, *(Task(worlds.lcbench(name, design=design), dangers) for name in names))
    dangers = {"divergence": effective_rate, "memory": small_memory}
    numbers = [number for number, task in enumerate(small_tasks.TASKS) if task.design == design]
    return (*found, *(Task(worlds.surrogate(number), dangers) for number in numbers))


# Tables

Results = dict[str, list[Found]]  # by task, a search for each seed


def cell(values: dict[str, list[float]], digits: int) -> str:
    """The mean over the tasks' means, and its interval."""
    means = [statistics.fmean(one) for one in values.values()]
    return f"{statistics.fmean(means):6.{digits}f} ±{interval(means):.{digits}f}"


def told(name: str, found: Results, beside: Results) -> str:
    """A line: failed trials and the difference, regret and the difference."""
    cells = []
    for field, digits in (("failed", 1), ("regret", 3)):
        values = {task: [getattr(one, field) for one in rows] for task, rows in found.items()}
        less = {
            task: [a - getattr(b, field) for a, b in zip(rows, beside[task], strict=True)]
            for task, rows in values.items()
        }
        cells += [cell(values, digits), cell(less, digits)]
    return f"  {name:12}" + " | ".join(f"{each:>15}" for each in cells)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lcbench", type=Path, default=Path("../shared/lcbench"))
    parser.add_argument("--tasks", choices=["design", "check"], default="design")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--shares", type=lambda text: [int(share) for share in text.split(",")], default=[10, 20, 40])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STRATEGIES))
    parser.add_argument("--whole", action="store_true", help="no early stopping: every trial is trained to its end")
    parser.add_argument("--quick", action="store_true", help="two made-up functions, one seed: does it run?")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"], os.environ["CURVES"] = "1", str(worlds.CURVES)
    os.environ["LCBENCH"] = str(options.lcbench.resolve())
    found = tasks(design=options.tasks == "design", lcbench=(options.lcbench / "simulator.py").exists())
    if options.quick:
        found, options.seeds, options.kinds, options.shares = found[:2], 1, ["both"], [20]
    print(f"{this_machine().cpus} CPUs, Python {platform.python_version()}; {len(found)} tasks, {options.seeds} seeds")
    print(f"  {'':12}{'failed':>15} | {'less HyperOpt':>15} | {'regret':>15} | {'less HyperOpt':>15}")
    results = {
        f"{kind} {share} %": measured(options, [Region(task, KINDS[kind], share / 100) for task in found])
        for kind in options.kinds
        for share in options.shares
        if print(f"{kind}, {share} % of the space") is None
    }
    print(json.dumps(results))


def measured(options: argparse.Namespace, regions: list[Region]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """All strategies on a row's tasks: a line for each."""
    rows: dict[str, Results] = {}
    for name in options.only:
        began = time.process_time()
        strategy = STRATEGIES[name]
        if options.whole:
            strategy = Strategy(strategy.search, NoEarlyStopping())
        rows[name] = {region.task.world.name: searches(region, strategy, options) for region in regions}
        seconds = (time.process_time() - began) / (options.seeds * len(regions))
        print(f"{told(name, rows[name], rows[options.only[0]])}   {seconds:.2f} s a search", flush=True)
    return {
        name: {task: [(one.failed, round(one.regret, 4)) for one in found] for task, found in results.items()}
        for name, results in rows.items()
    }


def searches(region: Region, strategy: Strategy, options: argparse.Namespace) -> list[Found]:
    """One strategy on one task."""
    seeds = [seed_of(region.task.world.name, options.first_seed + number) for number in range(options.seeds)]
    return [measure(region, strategy, seed) for seed in seeds]


if __name__ == "__main__":
    main()
