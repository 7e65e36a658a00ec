"""What shipped studies suggest; of studies whose good places are known, and of those that are really shipped."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tuner.errors import StudyError
from tuner.search import History, Problem, suggested_by_portfolio, usual_names
from tuner.search.portfolio import MOST_DRAWS, Kernel, Portfolio, shipped
from tuner.space import Config, Space, choice, loguniform, randint, uniform
from tuner.trial.hyperparameters import HYPERPARAMETERS

SPACE = Space(
    {
        "lr": loguniform(1e-4, 1e-1),
        "optimizer": choice(["adam", "sgd"]),
        "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
    }
)
DEFAULTS = {"optimizer": "adam", "momentum": 0.9, "lr": 1e-3}


def of(**good: Callable[[Config], float]) -> Portfolio:
    """Studies by name, each with 60 trials that stay behind as the function says."""
    generator = np.random.default_rng(0)
    configs = [SPACE.sample(generator) for _ in range(60 * len(good))]
    study = np.repeat(np.arange(len(good)), 60)
    regrets = [min(1.5, list(good.values())[number](config)) for number, config in zip(study, configs, strict=True)]
    kernel = Kernel(dict.fromkeys(SPACE.dimensions, 0.5), shared=0.1, own=0.1, noise=0.001)
    kinds = tuple("weights" if name.startswith("weights") else "random" for name in good)
    return Portfolio(SPACE, kernel, tuple(good), tuple(good), kinds, study, configs, np.array(regrets))


def near(lr: float, optimizer: str = "adam") -> Callable[[Config], float]:
    """Best at this rate, with the other optimizer at a hundredth of it."""
    return lambda config: 0.7 * abs(math.log10(config["lr"] / lr) + 2 * (config["optimizer"] != optimizer))


def suggested(space: dict[str, Any], portfolio: Portfolio, top: int = 1, kind: str = "random") -> list[Config]:
    return list(suggested_by_portfolio(Problem(Space(space)), {kind}, DEFAULTS, top, portfolio))


def test_what_was_good_comes_first_and_each_next_one_helps_where_the_first_did_badly() -> None:
    known = of(one=near(0.05), two=near(0.05), three=near(0.05), other=near(0.0005))
    first, second = suggested({"lr": loguniform(1e-4, 1e-1), "optimizer": "adam"}, known, 2)
    assert first["lr"] == pytest.approx(0.05, rel=0.5)
    assert second["lr"] == pytest.approx(0.0005, rel=0.7)


def test_a_hyperparameter_that_the_space_lacks_counts_with_its_default() -> None:
    known = of(one=near(0.05), two=near(0.05))  # sgd, as momentum says, wants a hundredth
    (adam,) = suggested({"lr": loguniform(1e-4, 1e-1)}, known)
    (sgd,) = suggested({"lr": loguniform(1e-4, 1e-1), "optimizer": "sgd"}, known)
    assert adam["lr"] > 0.02
    assert sgd["lr"] < 0.002
    assert sgd["optimizer"] == "sgd"


def test_values_stay_inside_of_the_space_and_as_near_as_may_be_to_what_was_searched() -> None:
    known = of(one=near(0.1), two=near(0.1))
    (wide,) = suggested({"lr": loguniform(1e-6, 10.0)}, known)
    assert wide["lr"] == pytest.approx(0.1, rel=0.3)  # nothing is known of higher ones
    (above,) = suggested({"lr": loguniform(0.5, 5.0)}, known)
    assert above["lr"] == pytest.approx(0.5)
    (below,) = suggested({"lr": loguniform(1e-6, 1e-5)}, known)
    assert below["lr"] == pytest.approx(1e-5)
    (listed,) = suggested({"lr": choice([0.001, 0.09, 7.0])}, known)
    assert listed["lr"] == 0.09


def test_conditions_and_constraints_hold() -> None:
    known = of(one=near(0.01, "sgd"), two=near(0.01, "sgd"))
    space = Space(
        {
            "optimizer": choice(["sgd", "lion"]),
            "momentum": uniform(0.5, 0.85).when(optimizer="sgd"),
            "lr": loguniform(1e-4, 1e-1),
            "extra": uniform(0, 1),
        },
        lambda config: config["lr"] < 0.002,
    )
    found = suggested_by_portfolio(Problem(space), {"random"}, DEFAULTS, 5, known)
    assert len(found) == 5
    for config in found:
        assert space.allows(config)
        assert ("momentum" in config) == (config["optimizer"] == "sgd")
        assert 0.8 <= config.get("momentum", 0.8) <= 0.85
        assert space.key(space.check(config, "x")) == space.key(config)


@pytest.mark.parametrize("share", [0.0, 1e-4])
def test_a_constraint_that_allows_next_to_nothing_is_asked_only_so_often(share: float) -> None:
    asked = []

    def constraint(config: Config) -> bool:
        asked.append(config)
        return bool(config["x"] < share)

    space = Space({"lr": loguniform(1e-4, 1e-1), "x": uniform(0, 1)}, constraint)
    found = suggested_by_portfolio(Problem(space), {"random"}, DEFAULTS, 5, of(one=near(0.05)))
    assert all(config["x"] < share for config in found)
    assert len(asked) <= MOST_DRAWS


def test_studies_of_another_kind_are_not_asked() -> None:
    known = of(one=near(0.05), weights=near(0.0005))
    (random,) = suggested({"lr": loguniform(1e-4, 1e-1)}, known)
    (weights,) = suggested({"lr": loguniform(1e-4, 1e-1)}, known, kind="weights")
    assert random["lr"] > 0.02
    assert weights["lr"] < 0.002


def test_a_space_without_the_hyperparameters_gets_nothing() -> None:
    assert suggested({"x": uniform(0, 1)}, of(one=near(0.05))) == []
    assert suggested({"lr": loguniform(1e-4, 1e-1)}, of(one=near(0.05)), top=0) == []


def test_what_comes_first_is_taken_into_account() -> None:
    known = of(one=near(0.05), two=near(0.05), three=near(0.05), other=near(0.0005))
    problem = Problem(Space({"lr": loguniform(1e-4, 1e-1), "optimizer": "adam"}))
    first = {"lr": 0.05, "optimizer": "adam"}
    (found,) = suggested_by_portfolio(problem, {"random"}, DEFAULTS, 1, known, first=[first])
    assert found["lr"] == pytest.approx(0.0005, rel=0.7)
    listed = Problem(Space({"lr": choice([0.05, 0.0005])}))
    assert suggested_by_portfolio(listed, {"random"}, DEFAULTS, 2, known, first=[{"lr": 0.05}]) == ({"lr": 0.0005},)


def test_the_same_seed_gives_the_same() -> None:
    space = Space({"lr": loguniform(1e-4, 1e-1), "optimizer": choice(["adam", "sgd"])})
    one, again, other = (
        suggested_by_portfolio(Problem(space, seed=seed), {"random"}, DEFAULTS, 3) for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other


# A function's own names


def renamed(space: dict[str, Any]) -> dict[str, str]:
    return usual_names(Space(space))


def test_usual_hyperparameters_are_known_by_their_names() -> None:
    space = {
        "opt": {"learning_rate": loguniform(1e-5, 1), "momentum": uniform(0, 1)},
        "batchSize": choice([16, 32]),
        "Weight-Decay": uniform(0, 0.1),
        "layers": choice([1, 2]),
    }
    assert renamed(space) == {
        "opt.learning_rate": "lr",
        "opt.momentum": "momentum",
        "batchSize": "batch_size",
        "Weight-Decay": "weight_decay",
    }


@pytest.mark.parametrize(
    "space",
    [
        {"lr": loguniform(1e-4, 1e-1)},  # too few
        {"batch_size": choice([16, 32]), "momentum": uniform(0, 0.99)},  # no learning rate
        {
            "lr": loguniform(1e-4, 1e-1),
            "wd": uniform(0, 0.1),
            "a": uniform(0, 1),
            "b": uniform(0, 1),
            "c": uniform(0, 1),
        },
        {"lr": uniform(-5, -1), "batch_size": choice([16, 32])},  # an exponent
        {"lr": uniform(1, 9), "batch_size": choice([16, 32])},  # a factor
        {"lr": choice(["slow", "fast"]), "batch_size": choice([16, 32])},
        {"lr": loguniform(1e-4, 1e-1), "batch_size": uniform(1000, 4000)},
        {"lr": loguniform(1e-4, 1e-1), "batch_size": randint(3, 9)},  # powers of two
        {"head": {"lr": loguniform(1e-4, 1e-1)}, "body": {"lr": loguniform(1e-4, 1e-1)}, "bs": choice([16, 32])},
    ],
)
def test_names_that_mean_something_else_or_are_too_few_are_not_known(space: dict[str, Any]) -> None:
    assert renamed(space) == {}


def test_a_constant_is_known_but_counts_for_nothing() -> None:
    space = {"lr": loguniform(1e-4, 1e-1), "bs": choice([16, 32]), "optimizer": "sgd", "seed": 1}
    assert renamed(space) == {"lr": "lr", "bs": "batch_size", "optimizer": "optimizer"}
    assert renamed({"lr": loguniform(1e-4, 1e-1), "optimizer": "sgd", "momentum": 0.9}) == {}


def test_suggestions_for_a_function_have_its_own_names_and_only_they_are_moved() -> None:
    known = of(one=near(0.05), two=near(0.05))
    space = Space({"net": {"learning_rate": loguniform(1e-4, 1e-1), "lr": uniform(5, 9)}, "momentum": uniform(0, 0.5)})
    names = {"net.learning_rate": "lr"}
    (found,) = suggested_by_portfolio(Problem(space), {"random"}, {"optimizer": "adam"}, 1, known, names)
    assert found["net"]["learning_rate"] == pytest.approx(0.05, rel=0.5)
    assert 5 <= found["net"]["lr"] <= 9
    (sgd,) = suggested_by_portfolio(Problem(space), {"random"}, {"optimizer": "sgd"}, 1, known, names)
    assert sgd["net"]["learning_rate"] < 0.002


# What is shipped


def test_what_is_shipped_is_of_hyperparameters_that_there_are() -> None:
    known = shipped()
    assert set(known.space.dimensions) <= set(HYPERPARAMETERS)
    for config in known.configs:
        for name, value in config.items():
            assert HYPERPARAMETERS[name].coerce(value) == value
    assert len(known.configs) == len(known.regrets) == len(known.study) >= 300
    assert set(known.kinds) == {"random", "weights"}
    assert len(set(known.sources)) >= 3


@pytest.mark.parametrize("kind", ["random", "weights"])
def test_what_is_shipped_is_better_than_chance_where_it_was_recorded(kind: str) -> None:
    known = shipped()
    defaults = {name: row.default for name, row in HYPERPARAMETERS.items() if row.default is not None}
    found = suggested_by_portfolio(Problem(known.space), {kind}, defaults, 1)
    drawn = [known.space.sample(np.random.default_rng(seed)) for seed in range(30)]
    expected = known.expected([{**defaults, **config} for config in (*found, *drawn)], {kind}).mean(axis=0)
    assert expected[0] < expected[1:].min()


def test_without_a_source_nothing_is_known_of_it() -> None:
    known = shipped()
    less = known.without("digits")
    assert 0 < len(less.configs) < len(known.configs)
    assert "digits" not in {known.sources[number] for number in less.study}


def test_the_switch_is_true_or_false() -> None:
    History(portfolio=None).check()  # type: ignore[arg-type]  # as JSON of an earlier version has it
    with pytest.raises(StudyError, match=r"^History.portfolio needs True or False, got 'no'; leave it out$"):
        History(portfolio="no").check()  # type: ignore[arg-type]
