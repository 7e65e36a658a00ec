"""Searches for the front of two objectives."""

from typing import Any

import numpy as np
import pytest

from tests.search.each import EACH
from tuner.search import BOHB, HyperOpt, MultiFidelityGP, Optuna, Problem, Proposals, Random, SearchAlgorithm
from tuner.search.multi_fidelity import BEYOND, expected_hypervolume
from tuner.space import Config, Space, choice, uniform
from tuner.space.pareto import Floats, hypervolume

# The front: y = 0.5, and any x. Dear is better; most configurations are far from it.
SPACE = Space({"x": uniform(0, 1), "y": uniform(0, 1), "z": uniform(0, 1), "kind": choice(["a", "b", "c", "d"])})


def both(config: Config) -> tuple[float, float]:
    """A value and a price, of both of which higher is better."""
    wrong = 2 * abs(config["y"] - 0.5) + abs(config["z"] - 0.2) + 0.3 * "abcd".index(config["kind"])
    return float(config["x"] ** 0.5 - wrong), float(1 - config["x"] - 0.3 * wrong)


def found(search: SearchAlgorithm, seed: int, trials: int = 30, **problem: Any) -> float:
    """The area that the search's configurations dominate."""
    problem = {"seed": seed, "trials": trials, "max_epochs": 9, "rungs": (3,), **problem}
    proposals = Proposals(Problem(SPACE, **problem), search.build(Problem(SPACE, **problem)))
    points = []
    for number in range(trials):
        config = proposals.suggest(number)
        assert config is not None
        value, price = both(config)
        proposals.price(number, price)
        for epoch in (3, 9):
            proposals.observe(number, epoch, value - 1 / epoch)
        proposals.end(number, "completed")
        points.append((value, price))
    return hypervolume(np.array(points), (-1.0, -1.0))


@pytest.mark.parametrize("search", [MultiFidelityGP(), BOHB(min_points=3), HyperOpt(startup_trials=8)])
def test_they_find_more_of_the_front_than_a_sobol_sequence(search: SearchAlgorithm) -> None:
    ours, blind = (np.array([found(one, seed) for seed in range(8)]) for one in (search, Random()))
    assert ours.mean() > blind.mean()


def test_what_is_known_before_a_trial_helps() -> None:
    known = np.array([found(MultiFidelityGP(), seed, price_of=lambda config: both(config)[1]) for seed in range(6)])
    learnt = np.array([found(MultiFidelityGP(), seed) for seed in range(6)])
    assert known.mean() > learnt.mean() - 0.02
    assert known.mean() > np.mean([found(Random(), seed) for seed in range(6)])


def test_the_expected_area_is_the_mean_of_areas() -> None:
    generator = np.random.default_rng(0)
    points = generator.random((12, 2))
    reference = points.min(0) - BEYOND * np.ptp(points, axis=0)
    means, deviation = generator.random((2, 4)), np.full(4, 0.2)

    def sampled(first: float, second: float, apart: float) -> float:
        drawn = np.stack([generator.normal(first, 0.2, 3000), generator.normal(second, apart, 3000)], axis=1)
        return float(np.mean([area(np.vstack([points, one])) for one in drawn]) - area(points))

    def area(of: Floats) -> float:
        return hypervolume(of, (reference[0], reference[1]))

    for known in (False, True):
        second = np.zeros(4) if known else deviation
        gains = expected_hypervolume(points, (means[0], deviation), (means[1], second))
        each = [sampled(*means[:, place], second[place]) for place in range(4)]
        assert gains == pytest.approx(each, abs=0.004, rel=0.15)


def test_of_one_network_alone_or_with_failed_trials_it_goes_on() -> None:
    problem = Problem(SPACE, seed=0, trials=12, max_epochs=3)
    proposals = Proposals(problem, MultiFidelityGP().build(problem))
    for number in range(12):
        config = proposals.suggest(number)
        assert config is not None
        proposals.price(number, 1.0)  # all cost the same
        proposals.observe(number, 1, both(config)[0])
        proposals.end(number, "failed" if number % 4 == 3 else "completed")
    assert proposals.expected_improvement(12) is not None


def test_those_that_take_two_objectives_say_so() -> None:
    assert {type(one).__name__ for one in EACH if not one.takes_two_objectives} == {Optuna.__name__}
