import math

import pytest

from tests.search.searching import propose, run
from tuner.errors import StudyError
from tuner.search import Problem, Random
from tuner.space import Space, choice, grid_search, loguniform, sample_from, uniform

SPACE = {"lr": loguniform(1e-4, 1e-1), "kind": choice(["a", "b"]), "x": uniform(0, 1).when(kind="a")}


def test_a_suggestion_depends_on_seed_and_number_alone() -> None:
    one, other = propose(Random(), SPACE, seed=3), propose(Random(), SPACE, seed=3)
    ten = run(one, lambda config: config["lr"], 10)
    assert run(other, lambda config: -1.0, 10) == ten
    assert propose(Random(), SPACE, seed=3).suggest(7) == ten[7]
    assert propose(Random(), SPACE, seed=4).suggest(7) != ten[7]


def test_it_draws_from_the_domains() -> None:
    configs = run(propose(Random(), SPACE), lambda config: 0.0, 400)
    exponents = sorted(math.log10(config["lr"]) for config in configs)
    assert abs(exponents[200] + 2.5) < 0.2
    assert exponents[0] < -3.9
    assert exponents[-1] > -1.1
    with_x = [config for config in configs if "x" in config]
    assert all(config["kind"] == "a" for config in with_x)
    assert len(with_x) == sum(config["kind"] == "a" for config in configs)
    assert 150 < len(with_x) < 250


def test_it_takes_every_kind_of_domain() -> None:
    space = Space({"a": grid_search([1, 2]), "b": sample_from(lambda config: config["a"] * 10)})
    configs = run(propose(Random(), space), lambda config: 0.0, 5)
    assert sorted(config["b"] for config in configs) == [10, 20]


def test_the_sobol_sequence_fills_every_cell_of_a_grid_where_independent_draws_leave_gaps() -> None:
    space = {"x": uniform(0, 1), "y": uniform(0, 1)}

    def cells(search: Random) -> int:
        configs = run(propose(search, space, seed=5), lambda config: 0.0, 64)
        return len({(int(config["x"] * 8), int(config["y"] * 8)) for config in configs})

    assert cells(Random()) == 64
    assert cells(Random(sobol=False)) < 50


def test_another_attempt_is_an_independent_draw() -> None:
    searcher = Random().build(Problem(Space(SPACE)))
    assert searcher.suggest(3) == searcher.suggest(3) != searcher.suggest(3, 1)
    assert Random().build(Problem(Space({"a": 1}))).suggest(0) == {"a": 1}


def test_sobol_is_true_or_false() -> None:
    with pytest.raises(StudyError, match=r"Random.sobol needs True or False, got 'yes'; use one of them"):
        Random(sobol="yes").check(Space(SPACE))  # type: ignore[arg-type]
