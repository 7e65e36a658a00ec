"""What conditions do to counting, checking and completing configurations."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import SpaceError
from tuner.space import Domain, Space, choice, randint, sample_from, uniform

OPTIMIZERS = Space(
    {
        "optimizer": choice(["adam", "sgd", "rmsprop"]),
        "momentum": uniform(0, 1).when(optimizer=["sgd", "rmsprop"]),
        "nesterov": choice([True, False]).when(optimizer="sgd"),
        "betas": choice([0.9, 0.99]).when(optimizer="adam"),
    }
)
CHAIN = Space({"a": choice(["x", "y"]), "b": choice([1, 2, 3]).when(a="x"), "c": choice([1, 2]).when(b=[2, 3])})


@st.composite
def finite_spaces(draw: st.DrawFn) -> Space:
    """Up to five dimensions, each conditional on up to two of those before."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    declaration: dict[str, Domain] = {}
    for number, size in enumerate(sizes):
        domain: Domain = choice(list(range(size))) if draw(st.booleans()) else randint(0, size)
        for other in draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []:
            allowed = draw(st.lists(st.integers(0, sizes[other] - 1), min_size=1, unique=True))
            domain = domain.when(**{f"d{other}": allowed})
        declaration[f"d{number}"] = domain
    try:
        return Space(declaration)
    except SpaceError:  # conditions that exclude each other
        return Space({"d0": choice([0])})


@settings(max_examples=150, deadline=None)
@given(space=finite_spaces())
def test_size_is_the_number_of_distinct_members_that_the_grid_has(space: Space) -> None:
    configs = list(space.grid())
    assert space.size == len(configs) == len({space.key(config) for config in configs})
    assert all(space.active(config) == set(config) for config in configs)


@settings(max_examples=100, deadline=None)
@given(space=finite_spaces(), data=st.data())
def test_any_part_of_a_configuration_is_completed_to_one_that_has_it(space: Space, data: st.DataObject) -> None:
    whole = space.sample(np.random.default_rng(data.draw(st.integers(0, 100))))
    kept = data.draw(st.sets(st.sampled_from(sorted(whole))))
    part = {name: value for name, value in whole.items() if name in kept}
    completed = space.complete(space.check(part, "point"), np.random.default_rng(0))
    assert completed.items() >= part.items()
    assert space.check(completed, "completed") == completed
    assert set(completed) == space.active(completed)


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (
            Space(
                {
                    **{f"p{i}": randint(0, 1000) for i in range(3)},
                    **{f"c{i}": choice([1, 2]).when(**{f"p{i}": 5}) for i in range(3)},
                }
            ),
            1001**3,
        ),
        (
            Space(
                {
                    **{f"p{i}": choice([1, 2]) for i in range(30)},
                    **{f"c{i}": choice([1, 2]).when(**{f"p{i}": 1}) for i in range(30)},
                }
            ),
            3**30,
        ),
    ],
    ids=["wide dimensions", "many dimensions"],
)
@pytest.mark.timeout(10)
def test_a_large_space_is_counted_without_being_listed(space: Space, size: int) -> None:
    assert space.size == size


@pytest.mark.parametrize(
    ("given_values", "optimizers"),
    [
        ({"momentum": 0.5}, ["rmsprop", "sgd"]),
        ({"nesterov": True}, ["sgd"]),
        ({"momentum": 0.5, "nesterov": True}, ["sgd"]),
        ({"betas": 0.9}, ["adam"]),
        ({}, ["adam", "rmsprop", "sgd"]),
    ],
    ids=str,
)
def test_what_others_hang_on_is_drawn_such_that_what_was_given_counts(
    given_values: dict[str, Any], optimizers: list[str]
) -> None:
    configs = [OPTIMIZERS.complete(given_values, np.random.default_rng(seed)) for seed in range(60)]
    assert sorted({config["optimizer"] for config in configs}) == optimizers
    assert all(config.items() >= given_values.items() for config in configs)


def test_a_chain_is_followed_to_its_first_dimension() -> None:
    configs = [CHAIN.complete({"c": 1}, np.random.default_rng(seed)) for seed in range(30)]
    assert {(config["a"], config["b"], config["c"]) for config in configs} == {("x", 2, 1), ("x", 3, 1)}


def test_values_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(SpaceError) as caught:
        OPTIMIZERS.check({"nesterov": True, "betas": 0.9}, "start_from[2]")
    assert str(caught.value) == (
        "start_from[2]: 'nesterov' and 'betas' are never part of one configuration, as they need different values of "
        "'optimizer'; leave one out"
    )


@pytest.mark.parametrize(
    "declaration",
    [
        {"o": choice(["a", "b"]), "x": uniform(0, 1).when(o="a").when(o="b")},
        {"o": choice(["a", "b"]), "m": choice([1]).when(o="a"), "x": uniform(0, 1).when(m=1, o="b")},
    ],
    ids=["its own", "of another that it hangs on"],
)
def test_conditions_that_never_hold_together_are_refused(declaration: dict[str, Any]) -> None:
    with pytest.raises(SpaceError) as caught:
        Space(declaration)
    assert str(caught.value) == (
        "when needs conditions that can hold together, got several values of 'o' for 'x'; write one .when(o=[...])"
    )


def test_a_column_of_nan_leaves_its_name_out() -> None:
    assert CHAIN.decode(CHAIN.encode({"a": "x"})) == {"a": "x"}
    assert CHAIN.decode(CHAIN.encode({"b": 2})) == {}


@pytest.mark.parametrize("names", list(itertools.permutations(["start", "double", "sum"])), ids="-".join)
def test_functions_may_use_each_other_in_any_order(names: tuple[str, ...]) -> None:
    entries: dict[str, Any] = {
        "start": choice([3]),
        "double": sample_from(lambda spec: spec.config.start * 2),
        "sum": sample_from(lambda config: config["double"] + config["start"]),
    }
    config = Space({name: entries[name] for name in names}).sample(np.random.default_rng(0))
    assert config == {"start": 3, "double": 6, "sum": 9}
    assert list(config) == list(names)


def test_functions_that_wait_for_each_other_are_refused() -> None:
    space = Space({"f": sample_from(lambda c: c["g"]), "g": sample_from(lambda c: c["f"])})
    with pytest.raises(SpaceError) as caught:
        space.sample(np.random.default_rng(0))
    assert str(caught.value) == (
        "sample_from needs a function of what was sampled before, got KeyError: 'g' for 'f' from {}; "
        "correct the function"
    )


def test_a_function_may_hand_on_a_section_as_a_plain_dict() -> None:
    space = Space({"net": {"width": choice([8])}, "copy": sample_from(lambda spec: spec.config.net)})
    config = space.sample(np.random.default_rng(0))
    assert config == {"net": {"width": 8}, "copy": {"width": 8}}
    assert type(config["copy"]) is dict


def test_a_function_takes_the_configuration_or_nothing() -> None:
    assert Space({"f": sample_from(lambda: 7)}).sample(np.random.default_rng(0)) == {"f": 7}
    with pytest.raises(SpaceError) as caught:
        Space({"f": sample_from(lambda config, generator: 7)})
    assert str(caught.value) == (
        "sample_from needs a function of at most one argument, the configuration, got sample_from(<lambda>) for 'f'; "
        "take one argument"
    )


def test_a_configuration_that_is_no_dict_is_refused() -> None:
    with pytest.raises(SpaceError) as caught:
        CHAIN.check(["x"], "start_from[0]")  # type: ignore[arg-type]
    assert str(caught.value) == "start_from[0] needs a dict of names and values, got ['x']; write {'name': value}"
