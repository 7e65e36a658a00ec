"""Dimensions that are there only under a condition, which may hang on another."""

import math
from typing import Any

import pytest

from tuner.errors import SpaceError
from tuner.space import (
    Space,
    choice,
    randint,
    uniform,
)


def test_conditions_may_chain_and_refer_to_siblings_or_to_the_top() -> None:
    space = Space(
        {
            "kind": choice(["cnn", "mlp"]),
            "cnn": {"stem": choice(["new", "sum"]).when(kind="cnn"), "width": randint(1, 5).when(stem="new")},
        }
    )
    assert {str(sorted(space.active(config))) for config in space.grid()} == {
        "['cnn.stem', 'cnn.width', 'kind']",
        "['cnn.stem', 'kind']",
        "['kind']",
    }


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({}, "when needs a condition, got none; write .when(optimizer='sgd')"),
        ({"a": []}, "when needs at least one value of 'a', got an empty list; name those that count"),
    ],
)
def test_a_condition_that_says_nothing_is_refused(conditions: dict[str, Any], message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        uniform(0, 1).when(**conditions)
    assert str(caught.value) == message


def test_several_conditions_must_all_hold() -> None:
    both = {"x": uniform(0, 1).when(a=1, b=[2, 3])}
    chained = {"x": uniform(0, 1).when(a=1).when(b=[2, 3])}
    numbers = {"a": choice([1, 2]), "b": choice([1, 2, 3])}
    assert Space(numbers | both) == Space(numbers | chained)
    active = [
        (config["a"], config["b"]) for config in Space(numbers).grid() if "x" in Space(numbers | both).active(config)
    ]
    assert active == [(1, 2), (1, 3)]


def test_a_condition_on_a_constant_holds_always() -> None:
    space = Space({"n": 3, "a": choice([1, 2]).when(n=3)})
    assert list(space.grid()) == [{"n": 3, "a": 1}, {"n": 3, "a": 2}]


def test_a_sibling_hides_a_name_from_the_top() -> None:
    space = Space(
        {"kind": choice(["a", "b"]), "net": {"kind": choice(["a", "b"]), "width": choice([8]).when(kind="a")}}
    )
    assert [config["net"] for config in space.grid() if "width" in config["net"]] == [{"kind": "a", "width": 8}] * 2


def test_one_and_true_are_different_conditions() -> None:
    space = Space({"a": choice([1, True]), "b": choice(["x"]).when(a=True), "c": choice(["y"]).when(a=1)})
    assert list(space.grid()) == [{"a": 1, "c": "y"}, {"a": True, "b": "x"}]


def test_a_set_of_values_reads_the_same_in_any_process() -> None:
    domain = uniform(0, 1).when(kind={"sgd", "adam", "lion"})
    assert domain.conditions == (("kind", ("adam", "lion", "sgd")),)


CHAIN = Space(
    {
        "d": choice([1, 2]).when(c=1),
        "c": choice([1, 2]).when(b=1),
        "b": choice([1, 2]).when(a="x"),
        "a": choice(["x", "z"]),
    }
)


def test_a_chain_of_conditions_breaks_at_its_first_link() -> None:
    assert list(CHAIN.grid()) == [
        {"d": 1, "c": 1, "b": 1, "a": "x"},
        {"d": 2, "c": 1, "b": 1, "a": "x"},
        {"c": 2, "b": 1, "a": "x"},
        {"b": 2, "a": "x"},
        {"a": "z"},
    ]
    assert CHAIN.size == 5
    assert CHAIN.active({"a": "z", "b": 1, "c": 1, "d": 1}) == {"a"}
    assert CHAIN.project({"a": "z", "b": 1, "c": 1, "d": 1}) == {"a": "z"}
    assert CHAIN.fix({"a": "z"}) == Space({"a": "z"})
    assert CHAIN.fix({"b": 2}) == Space({"b": 2, "a": choice(["x", "z"])})
    names = list(CHAIN.dimensions)
    encoded = CHAIN.encode({"a": "z", "b": 1, "c": 1, "d": 1})
    assert [name for name, unit in zip(names, encoded, strict=True) if not math.isnan(unit)] == ["a"]


def test_checking_refuses_what_another_value_rules_out_through_a_chain() -> None:
    assert CHAIN.check({"c": 1}, "point") == {"c": 1}
    with pytest.raises(SpaceError) as caught:
        CHAIN.check({"a": "z", "c": 1}, "point")
    assert str(caught.value) == "point: 'c' is part of a configuration only when b in [1]; leave it out"
