"""How often the headline on importance is right, where the truth is known.

    python benchmarks/importance.py [--seeds 20] [--first-seed 0] [--trials 20 50] [--only NAME ...]

Six spaces with known shares, searched as users do: by the default algorithm with early stopping, by random search with
and without it. A headline is right if it names the hyperparameter whose true share is the largest; the shares are of
the value after the last epoch over the whole space, by the definition in `tuner.results.importance`, without noise.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.virtual_search import Times, VirtualSearch
from tuner import ASHA, Budget, MultiFidelityGP, NoEarlyStopping, Random, Study, choice, loguniform, randint, uniform
from tuner.history.records import RunRecord
from tuner.results.full_length import outcomes_at_full_length
from tuner.results.importance import Headline, headline, importance
from tuner.space import Space

Floats = npt.NDArray[np.float64]
MAX_EPOCHS = 27
NOISE = 0.01  # of a value, where the values of random configurations spread by about 0.1
SEARCHES: dict[str, tuple[Any, Any]] = {
    "default": (MultiFidelityGP(), ASHA()),
    "random, early stopping": (Random(), ASHA()),
    "random": (Random(), NoEarlyStopping()),
}


@dataclass(frozen=True)
class Task:
    """A space and what a configuration at `units` [n, dimensions] reaches after the last epoch."""

    space: dict[str, Any]
    final: Callable[[Floats], Floats]

    def curve(self, config: dict[str, Any], epoch: int, generator: np.random.Generator) -> float:
        """The value after an epoch: it rises faster where the first hyperparameter is large, and has noise."""
        unit = np.nan_to_num(np.array(Space(self.space).encode(config)), nan=0.5)
        final = float(self.final(unit[None])[0])
        rate = 4.0 + 3.0 * unit[0]
        reached = final - (final - 0.1) * float(np.exp(-rate * epoch / 9)) * 0.9
        return reached + NOISE * float(generator.standard_normal())

    def shares(self) -> dict[str, float]:
        """Each hyperparameter's true share, by averages over a grid of its values and random others."""
        names = list(self.space)
        generator = np.random.default_rng(0)
        others = generator.random((4000, len(names)))
        total = self.final(others).var()
        found = {}
        for index, name in enumerate(names):
            places = ((np.arange(48) + 0.5) / 48).tolist()
            means = [self.final(_with(others, index, place)).mean() for place in places]
            found[name] = float(np.var(means) / total)
        return found


def _with(units: Floats, index: int, place: float) -> Floats:
    changed = units.copy()
    changed[:, index] = place
    return changed


def _bowl(unit: Floats, best: float) -> Floats:
    """0 at its best, on average -1."""
    return -((unit - best) ** 2) / float(best**2 - best + 1 / 3)


def _one_leads(u: Floats) -> Floats:
    return 0.8 + 0.10 * _bowl(u[:, 0], 0.6) + 0.03 * u[:, 1] + 0.02 * _bowl(u[:, 2], 0.3)


def _two_alike(u: Floats) -> Floats:
    return 0.8 + 0.080 * _bowl(u[:, 0], 0.5) + 0.077 * _bowl(u[:, 1], 0.5) + 0.02 * u[:, 2]


def _double(u: Floats) -> Floats:
    return 0.7 + 0.20 * u[:, 1] + 0.14 * u[:, 0] + 0.08 * u[:, 2] + 0.04 * _bowl(u[:, 3], 0.5)


def _together(u: Floats) -> Floats:
    valley = (u[:, 0] + u[:, 1] - 1) ** 2  # a larger batch wants a larger learning rate
    return 0.85 - 0.5 * valley + 0.05 * u[:, 2] + 0.12 * _bowl(u[:, 0], 0.55)


def _cliff(u: Floats) -> Floats:
    """Beyond some learning rate nothing is learned, sooner with the one optimizer."""
    edge = np.where(u[:, 1] < 0.5, 0.85, 0.65)
    learned = 1 / (1 + np.exp((u[:, 0] - edge) * 25))
    momentum = np.where(u[:, 1] < 0.5, 0.0, 0.06 * (u[:, 2] - 0.5))
    return 0.2 + learned * (0.5 + 0.15 * u[:, 0] + momentum + 0.03 * u[:, 3])


def _many(u: Floats) -> Floats:
    weights = (0.16, 0.11, 0.09, 0.07, 0.05, 0.03, 0.02, 0.0)
    order = (3, 0, 5, 1, 6, 2, 4, 7)
    return 0.5 + sum((w * u[:, k] for w, k in zip(weights, order, strict=True)), np.zeros(len(u)))


_FOUR = {"lr": loguniform(1e-5, 1e-1), "dropout": uniform(0, 0.7), "width": randint(8, 128)}
TASKS = {
    "one leads": Task(_FOUR, _one_leads),
    "two alike": Task(_FOUR, _two_alike),
    "double": Task({**_FOUR, "weight_decay": loguniform(1e-6, 1e-1)}, _double),
    "together": Task(
        {"lr": loguniform(1e-5, 1e-1), "batch_size": choice([16, 32, 64, 128, 256]), "dropout": uniform(0, 0.7)},
        _together,
    ),
    "cliff": Task(
        {
            "lr": loguniform(1e-5, 1e-1),
            "optimizer": choice(["adam", "sgd"]),
            "momentum": uniform(0.5, 0.99).when(optimizer="sgd"),
            "label_smoothing": uniform(0, 0.3),
        },
        _cliff,
    ),
    "many": Task({f"h{index}": uniform(0, 1) for index in range(8)}, _many),
}


@dataclass(frozen=True)
class Searched:
    """The end of a simulated search."""

    task: str
    search: str
    seed: int
    space: Space
    record: RunRecord


def study_of(task: str, search: str, seed: int, trials: int) -> Study:
    """What one search of a task searches."""
    algorithm, scheduler = SEARCHES[search]
    return Study(
        "simulated",
        trial=lambda config: None,
        space=TASKS[task].space,
        metric="accuracy",
        mode="max",
        search=algorithm,
        scheduler=scheduler,
        budget=Budget(trials=trials, max_epochs=MAX_EPOCHS),
        seed=seed,
    )


def searched(task: str, search: str, seed: int, trials: int) -> Searched:
    """One search of a task."""
    study = study_of(task, search, seed, trials)
    events = VirtualSearch(study, TASKS[task].curve, Times(), workers=2, seed=seed).run()
    return Searched(task, search, seed, study.search_space, RunRecord("accuracy", "max", events[:-1]))


def said(found: Searched) -> Headline:
    """What a report says of the search."""
    known = outcomes_at_full_length(found.record, found.space, MAX_EPOCHS, (3, 9))
    return headline(importance(found.space, known.configs, known.values, draws=known.draws))


@dataclass
class Tally:
    """Headlines of one kind of search."""

    count: int = 0
    named: int = 0
    wrong: int = 0
    clear: int = 0  # the leader's true share is double the second's
    clear_named: int = 0

    def add(self, told: Headline, shares: dict[str, float]) -> None:
        """Count one headline."""
        first, second = sorted(shares, key=lambda name: -shares[name])[:2]
        clear = shares[first] >= 2 * shares[second]
        self.count += 1
        self.named += told.leader is not None
        self.wrong += told.leader not in (None, first)
        self.clear += clear
        self.clear_named += clear and told.leader == first

    @property
    def figures(self) -> dict[str, float]:
        """Shares of the headlines."""
        return {
            "searches": self.count,
            "right": 1 - self.wrong / self.count,
            "named": self.named / self.count,
            "clear_named": self.clear_named / max(1, self.clear),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--only", nargs="+", choices=list(SEARCHES), default=list(SEARCHES))
    options = parser.parse_args()
    truth = {name: task.shares() for name, task in TASKS.items()}
    for name, shares in truth.items():
        print(name, {one: round(share, 2) for one, share in shares.items()})
    figures = dict(_measure(options, truth))
    print(json.dumps(figures))


def _measure(options: argparse.Namespace, truth: dict[str, dict[str, float]]) -> Iterator[tuple[str, dict[str, float]]]:
    for search in options.only:
        for trials in options.trials:
            tally = Tally()
            for task in TASKS:
                for seed in range(options.first_seed, options.first_seed + options.seeds):
                    tally.add(said(searched(task, search, seed, trials)), truth[task])
            print(
                f"{search}, {trials} trials:", {name: round(one, 3) for name, one in tally.figures.items()}, flush=True
            )
            yield f"{search}, {trials}", tally.figures


if __name__ == "__main__":
    main()
