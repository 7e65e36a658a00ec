"""Trials that fail, for every algorithm that learns: their good epochs attract nothing, and they can run again."""

import math
from typing import Any

import numpy as np
import pytest

from tests.search.each import EAGER
from tuner.search import BOHB, Grid, HyperOpt, MultiFidelityGP, Optuna, Problem, Random, SearchAlgorithm, Searcher
from tuner.search.bohb import BOHBSearcher
from tuner.space import Config, Space, choice, uniform

LEARNING = [algorithm for algorithm in EAGER if not isinstance(algorithm, Random | Grid)]
CUBE = Space({"x": uniform(0, 1), "y": uniform(0, 1), "z": uniform(0, 1)})
MIXED = Space({"x": uniform(0, 1), "kind": choice(["a", "b"]), "y": uniform(0, 1).when(kind="a")})


def named(algorithm: SearchAlgorithm) -> str:
    return type(algorithm).__name__


def built(algorithm: SearchAlgorithm, space: Space = MIXED, seed: int = 0) -> Searcher:
    return algorithm.build(Problem(space, seed=seed, max_epochs=9, rungs=(3,)))


def adopted(searcher: Searcher, number: int) -> Config:
    config = searcher.suggest(number)
    assert config is not None
    searcher.adopt(number, config)
    return config


def searched(algorithm: SearchAlgorithm, seed: int) -> tuple[int, float]:
    """Failures of 40 trials and the best that survives, where what is best after three epochs fails: x above 0.8."""
    searcher, draw = built(algorithm, CUBE, seed), np.random.default_rng(seed)
    failed, best = 0, -math.inf
    for number in range(40):
        config = adopted(searcher, number)
        height = config["x"] - 0.5 * (config["y"] - 0.4) ** 2 - 0.3 * (config["z"] - 0.6) ** 2
        searcher.observe(number, 3, height - 0.5 / 3 + 0.005 * draw.normal())
        if config["x"] > 0.8:
            searcher.end(number, "failed")
            failed += 1
        else:
            reached = height - 0.5 / 9 + 0.005 * draw.normal()
            searcher.observe(number, 9, reached)
            searcher.end(number, "completed")
            best = max(best, reached)
    return failed, best


@pytest.mark.parametrize(
    ("algorithm", "most", "least"),
    [(MultiFidelityGP(), 9, 0.69), (HyperOpt(), 12, 0.68), (BOHB(), 9, 0.6), (Optuna(), 14, 0.65)],
    ids=named,
)
def test_a_search_leaves_the_region_whose_trials_fail_and_finds_its_border(
    algorithm: SearchAlgorithm, most: float, least: float
) -> None:
    failures, bests = np.array([searched(algorithm, seed) for seed in range(4)]).T
    assert failures.mean() <= most
    assert bests.mean() >= least


def after_failures(algorithm: SearchAlgorithm, reached: float | None) -> list[Config | None]:
    """What is suggested after nine trials, two of which fail after they `reached` a value, or before their first."""
    searcher = built(algorithm)
    for number in range(9):
        config = MIXED.sample(np.random.default_rng(number))
        searcher.adopt(number, config)
        value = reached if number in (3, 6) else config["x"]
        if value is not None:
            searcher.observe(number, 3, value)
        searcher.end(number, "failed" if number in (3, 6) else "stopped")
    return [searcher.suggest(9), searcher.suggest(10)]


@pytest.mark.parametrize("algorithm", LEARNING, ids=named)
def test_what_a_failed_trial_reached_before_says_nothing(algorithm: SearchAlgorithm) -> None:
    assert after_failures(algorithm, 100.0) == after_failures(algorithm, -100.0) == after_failures(algorithm, None)


@pytest.mark.parametrize("algorithm", LEARNING, ids=named)
def test_a_failed_trial_repels(algorithm: SearchAlgorithm) -> None:
    """Half of the space fails, before the first epoch."""
    searcher = built(algorithm)
    configs = []
    for number in range(40):
        configs.append(adopted(searcher, number))
        if configs[-1]["kind"] == "a":
            searcher.end(number, "failed")
        else:
            searcher.observe(number, 9, -((configs[-1]["x"] - 0.5) ** 2))
            searcher.end(number, "completed")
    assert sum(config["kind"] == "a" for config in configs[20:]) <= 8


@pytest.mark.parametrize("algorithm", LEARNING, ids=named)
def test_a_trial_that_runs_again_counts_as_if_it_had_not_failed(algorithm: SearchAlgorithm) -> None:
    suggestions = []
    for fails in (True, False):
        searcher = built(algorithm)
        for number in range(9):
            searcher.adopt(number, MIXED.sample(np.random.default_rng(number)))
            searcher.observe(number, 3, 5.0 if number == 7 else math.sin(number))
        for number in (4, 7) if fails else ():
            searcher.end(number, "failed")
            searcher.restart(number)
        during = searcher.suggest(9)
        searcher.observe(4, 9, 2.0)
        searcher.end(4, "completed")
        suggestions.append([during, searcher.suggest(9)])
    assert suggestions[0] == suggestions[1]


@pytest.mark.parametrize("algorithm", LEARNING, ids=named)
def test_a_search_told_again_of_failures_and_retries_goes_on_the_same(algorithm: SearchAlgorithm) -> None:
    first, calls = built(algorithm), []
    for number in range(12):
        calls.append(("adopt", number, first.suggest(number)))
        first.adopt(*calls[-1][1:])
        steps: list[tuple[Any, ...]] = [("observe", number, 3, math.sin(number))]
        steps += [("end", number, "failed" if number % 3 == 0 else "stopped")]
        steps += [("restart", number - 3)] if number % 6 == 5 else []
        for name, *arguments in steps if number % 4 else steps[1:]:
            if name == "restart" and (number - 3) % 3:
                continue
            getattr(first, name)(*arguments)
            calls.append((name, *arguments))
    again = built(algorithm)
    for name, *arguments in calls:
        getattr(again, name)(*arguments)
    assert again.suggest(12) == first.suggest(12)


@pytest.mark.parametrize("algorithm", LEARNING, ids=named)
def test_where_every_trial_fails_the_search_goes_on(algorithm: SearchAlgorithm) -> None:
    searcher = built(algorithm)
    for number in range(12):
        adopted(searcher, number)
        searcher.observe(number, 3, 0.5)
        searcher.end(number, "failed")
    assert searcher.suggest(12) is not None


def test_bohb_takes_no_failed_trial_for_good() -> None:
    """With too few survivors for its model it draws from the space, however many have failed."""
    searcher = built(BOHB(min_points=4, random_share=0), CUBE)
    assert isinstance(searcher, BOHBSearcher)
    for number in range(12):
        adopted(searcher, number)
        searcher.observe(number, 3, float(number))
        searcher.end(number, "stopped" if number < 3 else "failed")
    assert searcher.suggest(12) == searcher._blind.suggest(12)
    searcher.restart(3)
    assert searcher.suggest(12) != searcher._blind.suggest(12)


def test_bohb_takes_no_failed_trial_for_good_where_most_fail() -> None:
    """15 % of 60 trials are more than survive: the good are those five, all of which have a low x."""
    searcher = built(BOHB(min_points=4, random_share=0, candidates=1, bandwidth_factor=0.01), CUBE)
    for number in range(60):
        searcher.adopt(number, {"x": 0.1 if number < 5 else 0.9, "y": 0.01 * number, "z": 0.5})
        searcher.observe(number, 3, float(number))
        searcher.end(number, "stopped" if number < 5 else "failed")
    for number in range(60, 70):
        config = searcher.suggest(number)
        assert config is not None
        assert config["x"] < 0.2
