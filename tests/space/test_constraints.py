import numpy as np
import pytest

from tests.search.searching import propose, run
from tuner import Budget, Study
from tuner.errors import SpaceError
from tuner.search import BOHB, Grid, HyperOpt, MultiFidelityGP, Random, SearchAlgorithm
from tuner.space import Config, Space, choice, loguniform, randint, uniform


def small(config: Config) -> bool:
    return bool(config["batch_size"] * config["net"]["width"] <= 512)


SPACE = Space(
    {"batch_size": choice([8, 16, 32, 64]), "net": {"width": choice([8, 16, 32, 64])}, "lr": loguniform(1e-4, 1e-1)},
    small,
)
FINITE = Space({"batch_size": choice([8, 16, 32, 64]), "net": {"width": choice([8, 16, 32, 64])}}, small)


@pytest.mark.parametrize("search", [Random(), Random(sobol=False), HyperOpt(), MultiFidelityGP(), BOHB(random_share=0)])
def test_no_search_tries_what_the_constraint_rules_out(search: SearchAlgorithm) -> None:
    configs = run(propose(search, SPACE, mode="max"), lambda config: config["batch_size"] * config["net"]["width"], 60)
    assert len(configs) == 60
    assert all(map(small, configs))


@pytest.mark.parametrize("search", [Random(), HyperOpt(), MultiFidelityGP(), BOHB(), Grid()])
def test_a_finite_space_is_searched_to_the_end_of_what_is_left(search: SearchAlgorithm) -> None:
    configs = run(propose(search, FINITE), lambda config: 0.0, 20)
    assert len(configs) == FINITE.size == 10
    assert all(map(small, configs))


def test_a_completed_configuration_keeps_what_was_given() -> None:
    for seed in range(20):
        config = SPACE.complete({"batch_size": 64}, np.random.default_rng(seed))
        assert (config["batch_size"], config["net"]["width"]) == (64, 8)


def test_fixing_a_value_keeps_the_constraint() -> None:
    assert FINITE.fix({"batch_size": 64}).size == 1
    assert FINITE.fix({"batch_size": 8}).size == 4


def test_spaces_are_equal_with_the_same_constraint_only() -> None:
    plain = Space({"batch_size": choice([8, 16, 32, 64]), "net": {"width": choice([8, 16, 32, 64])}})
    assert plain != FINITE
    assert plain.constrained(small) == FINITE


def build(**settings: object) -> Study:
    defaults = {"space": {"x": uniform(0, 1), "n": randint(0, 5)}, "metric": "loss", "mode": "min"}
    return Study("s", trial=lambda config: None, budget=Budget(trials=3), **{**defaults, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"constraint": lambda c: c["x"] > 2},
            "constraint needs to leave some configurations, got none in 10,000 draws, the last one {",
        ),
        (
            {"constraint": lambda c: c["n"] > 9, "space": {"n": randint(0, 5)}},
            "constraint needs to leave some configurations, got none of the space; loosen it",
        ),
        ({"constraint": lambda c: c["y"] > 2}, "constraint needs to take every configuration, got KeyError: 'y' for {"),
        ({"constraint": lambda c: c["n"]}, "constraint needs to return True or False, got "),
        (
            {"constraint": "n < 3"},
            "constraint needs a function of a configuration, got 'n < 3'; write constraint=lambda",
        ),
        (
            {"constraint": lambda c: c["n"] < 3, "start_from": [{"x": 0.5}, {"n": 4}]},
            "start_from[1]: constraint needs to leave some configurations, got none with {'n': 4} in 10,000 draws",
        ),
    ],
)
def test_a_constraint_that_cannot_work_is_found_before_anything_starts(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(SpaceError) as error:
        build(**settings)
    assert str(error.value).startswith(message)


def test_a_fixed_value_that_the_constraint_rules_out_is_refused() -> None:
    study = build(constraint=lambda c: bool(c["n"] < 3))
    assert study.with_options(fixed={"n": 2}).search_space.size == float("inf")
    with pytest.raises(SpaceError, match="constraint needs to leave some configurations"):
        study.with_options(fixed={"n": 4})


def test_the_numbers_of_trials_are_those_the_constraint_leaves() -> None:
    assert build(space={"n": randint(0, 5)}, constraint=lambda c: bool(c["n"] < 2)).trials == 2


def test_a_whole_configuration_that_the_constraint_rules_out_is_asked_about_once() -> None:
    asked: list[Config] = []
    space = Space({"x": uniform(0, 1), "c": 3}, lambda config: bool(asked.append(config)))
    with pytest.raises(SpaceError, match=r"constraint needs to allow the configuration, got \{'x': 0.5, 'c': 3\}"):
        space.complete({"x": 0.5}, np.random.default_rng(0))
    assert len(asked) == 1


def test_several_draws_are_fewer_where_the_constraint_allows_next_to_nothing() -> None:
    generator = np.random.default_rng(0)
    first = float(np.random.default_rng(0).random())
    rare = Space({"x": uniform(0, 1)}, lambda config: bool(config["x"] == first))
    assert rare.several(100, generator) == [{"x": first}]
    with pytest.raises(SpaceError, match="got none in 10,000 draws"):
        rare.several(100, generator)
    assert len(SPACE.several(100, generator)) == 100
