"""Tasks on which a search of few trials takes a tenth of a second: half for design, half for the final check.

Four kinds. "lcbench": LCBench's surrogate, of whose 52 epochs a search sees nine, spread evenly. "recorded": the small
tasks that really trained, each suggestion replaced by the nearest recorded configuration. "surrogate": a model of the
same recordings that takes any configuration, which shows what a search does that seeks limits; IT IS A SURROGATE: what
it says of configurations far from the recorded ones is made up. "simulated": functions of known form, of conditional,
small and wide spaces. What a search sees of an epoch is the share of this many images that are right, drawn by the
accuracy.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import portfolio
import search
import small_searches
import small_tasks
from peers import unit_of
from scipy.linalg import cho_factor, cho_solve

from tuner import choice, lograndint, loguniform, randint, uniform
from tuner.search.base import Floats
from tuner.search.gaussian_process import matern
from tuner.search.portfolio import Portfolio, read
from tuner.space import Config, Space

IMAGES = 1000  # by which LCBench's values are as noisy as a share of so many
EPOCHS = small_tasks.EPOCHS
REPORTS = np.arange(1, EPOCHS + 1) * search.EPOCHS // EPOCHS - 1  # the last one after the whole training
CHECKED = ["126025", "126029", "167149", "167184", "168330", "168908", "189354", "189905"]  # of LCBench's 26 others
CURVES = Path(__file__).with_name("curves.jsonl.xz")
DRAWS = 2000  # random configurations that say what a good and a middle one reach, where nothing else does
FEATURES = 400  # random Fourier features of a drawn function
LAST_WORTH = 0.7  # correlation of what a draw adds after the first epoch with what it adds after the last


@dataclass(frozen=True)
class World:
    """A task.

    Attributes:
        name: unlike any other's
        kind: see the module
        design: whether variants are chosen on it
        space: what is searched
        images: on which a search sees the accuracy
        curve: true accuracies [9] of a configuration, with the luck of a trial
        limits: accuracy of the best configuration and of a random one in the middle
    """

    name: str
    kind: str
    design: bool
    space: Space
    images: int
    curve: Callable[[Config, np.random.Generator], Floats]
    limits: Callable[[], tuple[float, float]]

    def begin(self, seed: int) -> small_searches.Running:
        """The trials of one search."""
        if self.kind == "recorded":
            return small_searches.Trials(small_searches.task_of(self.name), seed, real=False)
        return Simulated(self, seed)

    def regret(self, accuracy: float) -> float:
        """0 for the best, 1 for a random one in the middle."""
        best, middle = self.limits()
        return (best - accuracy) / (best - middle)


class Simulated:
    """The trials of one search in a world that takes any configuration."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._seed = world, seed
        self._curves: dict[str, Floats] = {}
        self._draws: dict[str, np.random.Generator] = {}
        self.true: dict[str, list[float]] = {}
        self.seen: dict[str, list[float]] = {}

    def begin(self, trial: str, config: Config) -> Config:
        """A new one."""
        self._draws[trial] = draw = np.random.default_rng([self._seed, int(trial), 5])
        self._curves[trial] = np.clip(self._world.curve(config, draw), 0, 1)
        self.true[trial], self.seen[trial] = [], []
        return config

    def step(self, trial: str) -> float:
        """The value of its next epoch."""
        value = float(self._curves[trial][len(self.true[trial])])
        self.true[trial].append(value)
        self.seen[trial].append(self._draws[trial].binomial(self._world.images, value) / self._world.images)
        return self.seen[trial][-1]


@cache
def worlds() -> tuple[World, ...]:
    """All of them."""
    os.environ["CURVES"] = str(CURVES)
    tasks = small_tasks.TASKS
    return (
        *(lcbench(task, design=True) for task in search.lcbench().DEVELOPMENT_TASKS),
        *(lcbench(task, design=False) for task in search.other_tasks()),
        *(recorded(task) for task in tasks),
        *(surrogate(number) for number in range(len(tasks))),
        *(simulated(name, number, design) for name in SPACES for number, design in ((0, True), (1, False))),
    )


# LCBench


def lcbench(task: str, *, design: bool) -> World:
    """One of its tasks."""

    def curve(config: Config, luck: np.random.Generator) -> Floats:
        unit = unit_of(search.lcbench(), [config[name] for name, *_ in search.lcbench().DIMENSIONS])
        return np.asarray(search.lcbench().learning_curve(task, unit)[REPORTS] / 100)

    def limits() -> tuple[float, float]:
        reference = search.lcbench().reference(task)
        return reference["best"] / 100, reference["med"] / 100

    return World(task, "lcbench", design, search.SPACE, IMAGES, curve, limits)


# What really trained


def recorded(task: small_tasks.Task) -> World:
    """A small task, and no other configurations than the recorded ones."""
    rows = small_searches.table()[task.name]
    return World(task.name, "recorded", task.design, task.space, 0, _no_curve, lambda: portfolio.scale(rows))


def _no_curve(config: Config, luck: np.random.Generator) -> Floats:
    raise AssertionError("recorded trials have curves of their own")


def surrogate(number: int) -> World:
    """A model of the small task of that number."""
    task, model = small_tasks.TASKS[number], recordings()
    name = f"{task.name}~"
    images = 200 if task.source == "digits" else 300

    def curve(config: Config, luck: np.random.Generator) -> Floats:
        return model.accuracies(number, [config])[0] + model.luck(number) * luck.standard_normal()

    @cache
    def limits() -> tuple[float, float]:
        draw = np.random.default_rng([number, 6])
        ends = model.accuracies(number, [task.space.sample(draw) for _ in range(DRAWS)])[:, -1]
        return float(ends.max()), float(np.median(ends))

    return World(name, "surrogate", task.design, task.space, images, curve, limits)


class Recordings:
    """A model of all recordings: for each task a function drawn from what may be true given them.

    What a trial stays behind after each epoch is a Gaussian process, with the kernel that the portfolio was fitted to
    (`tuner/search/portfolio.py`). Its draw (Wilson et al. 2020, by random Fourier features of Matérn 5/2) is rough
    between the recordings, as a mean would not be. After early epochs a second draw is mixed in, so that these mislead.
    """

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        table = small_searches.table()
        return [row for task in small_tasks.TASKS for row in table[task.name]]

    @cached_property
    def _portfolio(self) -> Portfolio:
        return read(portfolio.portfolio(small_searches.table(), _kernel()))

    @cached_property
    def _told(self) -> tuple[Floats, Floats]:
        """What each of the recorded trials stayed behind [trials, 9], and the middle of each column."""
        found = []
        for row in self._rows:
            best, middle = portfolio.scale(small_searches.table()[row["task"]])
            values = [0.0 if value is None else value for value in row["test"]]
            found.append([min((best - value) / (best - middle), 3.0) for value in values])
        behind = np.array(found)
        return behind, behind.mean(axis=0)

    @cached_property
    def _known(self) -> Floats:
        return self._portfolio.points(self._portfolio.configs)

    @cached_property
    def _solve(self) -> Any:
        kernel, known, study = self._portfolio.kernel, self._known, self._portfolio.study
        same = study[:, None] == study
        covariance = matern(known, known) * (kernel.shared + kernel.own * same)
        return cho_factor(covariance + kernel.noise * np.eye(len(known)), lower=True)

    @cached_property
    def _mean_weights(self) -> Floats:
        behind, middle = self._told
        return np.asarray(cho_solve(self._solve, behind - middle))

    @cache  # noqa: B019 -- there is one
    def _drawn(self, number: int) -> tuple[Any, Floats]:
        """A draw of the prior for a task, two functions [points, 2], and the weights that take the known away."""
        draw, kernel = np.random.default_rng([number, 7]), self._portfolio.kernel
        width = self._known.shape[1]
        stretch = np.sqrt(5 / draw.chisquare(5, size=(FEATURES, 1)))
        frequencies, phases = draw.standard_normal((FEATURES, width)) * stretch, draw.uniform(0, 2 * math.pi, FEATURES)
        amplitudes = draw.standard_normal((2, FEATURES, 2))  # what all studies share, what is this one's own

        def prior(points: Floats, own: Floats) -> Floats:
            waves = np.cos(points @ frequencies.T + phases) * math.sqrt(2 / FEATURES)
            shared = math.sqrt(kernel.shared) * waves @ amplitudes[0]
            return np.asarray(shared + math.sqrt(kernel.own) * (waves @ amplitudes[1]) * own[:, None])

        noise = math.sqrt(kernel.noise) * draw.standard_normal((len(self._known), 2))
        known = prior(self._known, (self._portfolio.study == number).astype(float)) + noise
        return prior, np.asarray(cho_solve(self._solve, known))

    def accuracies(self, number: int, configs: list[Config]) -> Floats:
        """True accuracies of configurations [n] after each epoch: [n, 9]."""
        task = small_tasks.TASKS[number]
        settings = {**small_searches.DEFAULTS, **portfolio.SETS[id(task.space)]}
        points = self._portfolio.points([{**settings, **config} for config in configs])
        kernel, same = self._portfolio.kernel, self._portfolio.study == number
        covariance = matern(points, self._known) * (kernel.shared + kernel.own * same)
        prior, taken = self._drawn(number)
        rough = prior(points, np.ones(len(points))) - covariance @ taken
        late = LAST_WORTH + (1 - LAST_WORTH) * np.log(np.arange(1, EPOCHS + 1)) / math.log(EPOCHS)
        behind = self._told[1] + covariance @ self._mean_weights
        behind = behind + rough[:, :1] * late + rough[:, 1:] * np.sqrt(1 - late**2)
        best, middle = portfolio.scale(small_searches.table()[task.name])
        return below_one(best - behind * (best - middle), best)

    def luck(self, number: int) -> float:
        """Standard deviation of what a trial's seed adds to its accuracy."""
        best, middle = portfolio.scale(small_searches.table()[small_tasks.TASKS[number].name])
        return 0.5 * math.sqrt(self._portfolio.kernel.noise) * (best - middle)  # half of the rest is the test images'


def below_one(accuracies: Floats, best: float) -> Floats:
    """Those above the best recorded one drawn in, such that none reaches 1; order and slope at the best stay."""
    above = np.maximum(accuracies - best, 0) / (1 - best)
    return np.where(above > 0, best + (1 - best) * (1 - np.exp(-above)), np.maximum(accuracies, 0))


@cache
def recordings() -> Recordings:
    """The one model."""
    return Recordings()


def _kernel() -> dict[str, Any]:
    return json.loads(portfolio.OUT.read_text())["kernel"]  # type: ignore[no-any-return]


# Functions of known form

SPACES = {
    "boosted": Space(
        {
            "booster": choice(["trees", "linear", "dart"]),
            "eta": loguniform(1e-4, 1),
            "lambda": loguniform(1e-3, 1e3),
            "alpha": loguniform(1e-3, 1e3),
            "subsample": uniform(0.1, 1.0),
            "depth": randint(1, 16).when(booster=["trees", "dart"]),
            "columns": uniform(0.1, 1.0).when(booster=["trees", "dart"]),
            "min_child_weight": loguniform(1, 128).when(booster=["trees", "dart"]),
            "drop": uniform(0.0, 1.0).when(booster="dart"),
        }
    ),
    "optimizers": Space(
        {
            "optimizer": choice(["adam", "sgd"]),
            "adam_lr": loguniform(1e-5, 1e-1).when(optimizer="adam"),
            "beta": uniform(0.5, 0.999).when(optimizer="adam"),
            "sgd_lr": loguniform(1e-4, 1).when(optimizer="sgd"),
            "momentum": uniform(0.5, 0.99).when(optimizer="sgd"),
            "schedule": choice(["constant", "cosine"]),
            "warm_up": uniform(0.0, 0.5).when(schedule="cosine"),
            "width": lograndint(16, 513),
        }
    ),
    "small": Space({"lr": loguniform(1e-4, 1e-1), "weight_decay": loguniform(1e-6, 1e-1), "dropout": uniform(0, 0.7)}),
    "wide": Space({f"x{number}": uniform(0.0, 1.0) for number in range(12)}),
}


def simulated(name: str, number: int, design: bool) -> World:
    """A bowl in the space, whose bottom lies anywhere, seldom at a limit, and in which few dimensions matter much."""
    space = SPACES[name]
    draw = np.random.default_rng([list(SPACES).index(name), number, 8])
    width = len(space.dimensions)
    bottom, weight = draw.beta(1.5, 1.5, width), draw.exponential(1, width) ** 2
    weight *= 5 / weight.sum()
    first, second = draw.permutation(width)[:2]
    twist, pace = draw.uniform(-1, 1), draw.integers(width)
    top, span = draw.uniform(0.75, 0.97), draw.uniform(0.3, 0.6)
    worse = draw.exponential(0.3, (width, 8))  # of options that have no order

    def curve(config: Config, luck: np.random.Generator) -> Floats:
        units = space.encode(config)
        away = np.where(np.isnan(units), 0, units - bottom)
        for column, domain in enumerate(space.dimensions.values()):
            if domain.size != math.inf and domain.describe().startswith("choice") and not np.isnan(units[column]):
                away[column] = math.sqrt(worse[column, int(units[column] * domain.size)])
        height = float((weight * away**2).sum() + twist * away[first] * away[second])
        end = top - span * (1 - math.exp(-3 * max(height, 0)))
        speed = 0.3 + 1.2 * (0.5 if np.isnan(units[pace]) else units[pace])
        risen = 1 - np.exp(-speed * np.arange(1, EPOCHS + 1))
        return np.asarray(end - (end - 0.1) * (1 - risen) * 0.6 + 0.003 * luck.standard_normal())

    @cache
    def limits() -> tuple[float, float]:
        quiet = np.random.default_rng(0)
        found = [curve(space.sample(draw), quiet)[-1] for _ in range(4 * DRAWS)]
        return float(max(found)), float(np.median(found))

    return World(f"{name}{number}", "simulated", design, space, 1000, curve, limits)
