from typing import Any

import numpy as np
import pytest

from tuner import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from tuner.search import Region, good_region, grid_of
from tuner.space import Choice, Float, Space


def region_of(domain: Any, values: list[Any], **options: Any) -> tuple[Any, bool]:
    """What becomes of one hyperparameter whose trials had these values, the best first."""
    space = Space({"x": domain})
    scores = [float(-index) for index in range(len(values))]
    found = good_region(space, [{"x": value} for value in values], scores, quantile=1, **options)
    return found.entries["x"], bool(found.widened)


@pytest.mark.parametrize(
    ("domain", "values", "expected", "widened"),
    [
        (uniform(0, 10), [5.0, 4.0, 6.0], uniform(3.8, 6.2), False),
        (uniform(0, 10), [5.0], uniform(4.5, 5.5), False),
        (uniform(0, 10), [0.1, 4.0], uniform(0, 4.4), False),  # never below 0 where the old range wasn't
        (uniform(-5, 5), [-4.9, 0.0], uniform(-7.5, 0.49), True),
        (uniform(0, 10), [9.9, 5.0], uniform(4.5, 12.5), True),
        (uniform(0, 1), [0.99, 0.5], uniform(0.45, 1), False),  # a share stays one
        (loguniform(1e-4, 1e-1), [1e-4, 1e-3], loguniform(1.7e-5, 1.3e-3), True),
        (loguniform(1e-4, 1e-1), [1e-2, 1e-3], loguniform(0.00079, 0.015), False),
        (quniform(0, 1, 0.1), [0.5, 0.3], quniform(0.2, 0.6, 0.1), False),
        (randint(1, 101), [50, 40], randint(38, 57), False),
        (randint(1, 9), [8, 5], randint(4, 12), True),
        (randint(1, 9), [1, 3], randint(1, 5), False),
        (randint(0, 9), [0, 3], randint(0, 5), False),
        (randint(-3, 9), [-3, 3], randint(-7, 5), True),
        (lograndint(1, 1025), [1024, 512], lograndint(470, 6901), True),
        (qlograndint(8, 512, 8), [64, 32], qlograndint(24, 88, 8), False),
        (randn(0, 1), [0.0, 0.5], Float(-0.13, 0.56), False),
        (choice(["a", "b", "c"]), ["c", "a"], choice(["a", "c"]), False),
        (choice(["a", "b"]), ["b"], "b", False),
        (choice([16, 32, 64, 128]), [32, 128], choice([32, 64, 128]), False),
        (choice([16, 32, 64, 128]), [128, 64], choice([64, 128, 256]), True),
        (choice([16, 32, 64, 128]), [16], choice([8, 16]), True),
        (choice([0.0, 0.1, 0.2]), [0.2], choice([0.2, 0.3]), True),
        (choice([0.0, 0.1, 0.2]), [0.0], 0.0, False),
        (choice([3, 2, 1]), [1, 3], choice([3, 1]), False),  # in no order, and so without a border
        (choice([None, 1]), [1], 1, False),
    ],
)
def test_each_kind_of_domain_is_narrowed_to_the_good_trials(
    domain: Any, values: list[Any], expected: Any, widened: bool
) -> None:
    found, beyond = region_of(domain, values)
    if isinstance(expected, Float) or hasattr(expected, "low"):
        assert type(found) is type(expected)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=0.08)
        assert (found.log, found.q) == (expected.log, expected.q)
    else:
        assert found == expected
    assert beyond == widened
    Space({"x": found})


def test_limits_hold_where_a_range_goes_on() -> None:
    assert region_of(uniform(0.5, 0.99), [0.985, 0.9], limits={"x": (0, 0.9999)})[0].high == 0.9999
    assert region_of(loguniform(1e-3, 1), [0.99, 0.1], limits={"x": (1e-8, 1)}) == (loguniform(0.079, 1), False)
    assert region_of(choice([64, 128]), [128], limits={"x": (1, 200)}) == (128, False)


def test_the_best_share_of_the_trials_counts_and_three_at_least() -> None:
    space = Space({"x": uniform(0, 100)})
    configs = sorted(({"x": float(x)} for x in range(1, 100)), key=lambda config: abs(config["x"] - 50))
    values = [-abs(config["x"] - 50) for config in configs]
    found = good_region(space, configs, values, quantile=0.2)
    assert (found.best, found.good, found.threshold) == ({"x": 50.0}, 20, -10.0)
    assert found.entries["x"].low == pytest.approx(38, abs=1)
    assert good_region(space, configs, values, quantile=0.001).good == 3
    assert good_region(space, configs[:2], values[:2]).good == 2


CONDITIONAL = Space(
    {
        "optimizer": choice(["adam", "sgd", "rmsprop"]),
        "momentum": uniform(0, 1).when(optimizer=["sgd", "rmsprop"]),
        "nesterov": choice([True, False]).when(optimizer="sgd"),
        "k": 3,
    }
)


def region(*configs: dict[str, Any]) -> Region:
    return good_region(CONDITIONAL, list(configs), [float(-i) for i in range(len(configs))], quantile=1)


def test_what_depends_on_an_option_that_is_gone_leaves_the_space() -> None:
    found = region({"optimizer": "adam", "k": 3}, {"optimizer": "adam", "k": 3})
    assert found.entries == {"optimizer": "adam", "k": 3}


def test_conditions_that_always_hold_are_dropped() -> None:
    found = region(
        {"optimizer": "sgd", "momentum": 0.5, "nesterov": True, "k": 3},
        {"optimizer": "rmsprop", "momentum": 0.4, "k": 3},
    )
    assert found.entries["momentum"].conditions == ()
    assert found.entries["nesterov"] == Choice((True,), conditions=(("optimizer", ("sgd",)),))
    space = Space(found.entries)
    sampled = [space.sample(np.random.default_rng(seed)) for seed in range(20)]
    assert {("nesterov" in config) == (config["optimizer"] == "sgd") for config in sampled} == {True}


def test_a_grid_spends_its_configurations_on_what_matters() -> None:
    space = Space({"a": uniform(0, 1), "b": uniform(0, 1), "c": choice(["x", "y"]), "d": uniform(0, 1), "e": 7})
    generator = np.random.default_rng(0)
    configs = sorted((space.sample(generator) for _ in range(40)), key=lambda config: abs(config["a"] - 0.6))
    values = [-abs(config["a"] - 0.6) for config in configs]
    found = good_region(space, configs, values)
    shares = {"a": 0.5, "c": 0.2, "b": 0.1, "d": 0.001}
    grid = grid_of(found, space, shares, configurations=30)
    best = found.best
    assert {name: len(entry.options) for name, entry in grid.entries.items() if isinstance(entry, Choice)} == {
        "a": 5,
        "c": 2,
        "b": 3,
    }
    assert (grid.entries["d"], grid.entries["e"]) == (best["d"], 7)
    made = Space(grid.entries)
    assert made.size == 30
    assert best in [made.project(config) for config in made.grid()]
    assert grid_of(found, space, shares, configurations=4).entries["a"].size == 3
    assert Space(grid_of(found, space, shares, configurations=1).entries).size == 1


def test_a_grid_has_a_value_for_what_the_best_configuration_lacks() -> None:
    found = region(
        {"optimizer": "adam", "k": 3},
        {"optimizer": "sgd", "momentum": 0.5, "nesterov": True, "k": 3},
        {"optimizer": "sgd", "momentum": 0.7, "nesterov": False, "k": 3},
    )
    grid = Space(grid_of(found, CONDITIONAL, {"optimizer": 0.9}, configurations=30).entries)
    assert [config["optimizer"] for config in grid.grid()] == ["adam", "sgd"]
    assert all("momentum" in config for config in grid.grid() if config["optimizer"] == "sgd")


def test_functions_stay_and_grids_are_narrowed_as_grids() -> None:
    double = sample_from(lambda config: 2 * config["x"])
    space = Space({"x": grid_search([1, 2, 3]), "y": double})
    found = good_region(space, [{"x": 2, "y": 4}, {"x": 3, "y": 6}], [2.0, 1.0])
    assert found.entries["x"] == grid_search([2, 3])
    assert found.entries["y"] == double
