"""Which values are the same, and that none depends on numpy's types, noise of floats, or the hash seed."""

import json
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpaceError
from tuner.space import Domain, Space, choice, qloguniform, quniform, randint, uniform
from tuner.space.values import canonical, recorded, same

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab1", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=4,
)


def typed(value: Any) -> Any:
    """A value in which Python's equality tells True from 1 and 1.0."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), repr(value))


@given(one=plain_values, other=plain_values)
def test_texts_are_equal_exactly_where_values_are(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (typed(one) == typed(other))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 1.0, True), (1, True, False), (0, False, False), ("1", 1, False), (None, "null", False),
        ([1, 2], (1, 2), True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ({1: "a"}, {"1": "a"}, False),
        (np.int64(3), 3, True), (np.array([1, 2]), [1, 2], True), ({3, 1}, {1, 3}, True), (int, int, True),
        (int, float, False), (float("nan"), float("nan"), True),
    ],
)  # fmt: skip
def test_same_values(one: Any, other: Any, expected: bool) -> None:
    assert same(one, other) is expected


@given(x=st.floats(-1, 1), y=st.floats(-1, 1), n=st.integers(0, 9), m=st.integers(0, 9))
def test_a_key_is_shared_exactly_by_the_same_configuration(x: float, y: float, n: int, m: int) -> None:
    space = Space({"x": uniform(-1, 1), "n": randint(0, 10), "c": 1})
    one, other = {"x": x, "n": n, "c": 1}, {"n": float(m), "x": y, "c": 1.0}
    assert (space.key(one) == space.key(other)) == (x == y and n == m)


def test_minus_zero_is_zero() -> None:
    space = Space({"x": uniform(-1, 1)})
    assert space.key({"x": -0.0}) == space.key({"x": 0})
    assert str(space.check({"x": -0.0}, "point")) == "{'x': 0.0}"


def test_a_constant_may_be_given_as_another_type_of_number() -> None:
    assert Space({"epochs": 1}).check({"epochs": 1.0}, "point") == {"epochs": 1}
    with pytest.raises(SpaceError, match=r"^point: 'epochs' is the constant 1 in the space, got True; leave it out$"):
        Space({"epochs": 1}).check({"epochs": True}, "point")


def test_a_condition_tells_true_from_one() -> None:
    space = Space({"a": choice([1, True]), "b": choice([5]).when(a=True)})
    assert list(space.grid()) == [{"a": 1}, {"a": True, "b": 5}]


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (quniform(0, 1, 1 / 3), [0.0, 1 / 3, 2 / 3, 1.0]),
        (quniform(-0.3, 0.3, 0.1), [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3]),
        (quniform(0, 3e-7, 1e-7), [0.0, 1e-7, 2e-7, 3e-7]),
        (qloguniform(0.1, 0.4, 0.1), [0.1, 0.2, 0.3, 0.4]),
    ],
    ids=lambda value: value.describe() if isinstance(value, Domain) else "",
)
def test_steps_are_clean_and_reach_the_bounds(domain: Domain, values: list[float]) -> None:
    assert domain.values() == values
    assert {domain.decode(float(unit)) for unit in np.linspace(0, 1, 2000)} == set(values)


def test_a_description_loses_no_digit() -> None:
    assert uniform(0.123456789, 1.0).describe() == "uniform(0.123456789, 1)"


def test_a_logarithmic_step_is_never_corrected_to_zero() -> None:
    with pytest.raises(SpaceError, match=r"got low=0.03 with q=0.1 for 'x'; use low=0.1$"):
        qloguniform(0.03, 1, 0.1).validate("x")


def test_a_choice_of_a_dict_is_refused() -> None:
    with pytest.raises(SpaceError) as caught:
        choice({"a": 1})
    assert str(caught.value) == "choice needs a list of values, got {'a': 1}; write choice([{'a': 1}])"


def test_the_values_of_a_set_have_the_same_order_in_any_process() -> None:
    program = (
        "from tuner.space import *; from tuner.space.values import canonical; "
        "print(choice({'c', 'a', 'b'}).values(), uniform(0, 1).when(o={'z', 'y', 'x'}).conditions, "
        "canonical({'k': {'q', 'p'}}))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert outputs == {"""['a', 'b', 'c'] (('o', ('x', 'y', 'z')),) {"k": set("p", "q")}\n"""}


def test_a_choice_of_ray_with_its_grid_sampler_is_a_grid_search() -> None:
    from ray.tune.search.sample import Categorical

    assert Space({"a": Categorical([1, 2]).grid()}).grid_dimensions == ["a"]


def test_a_grid_search_of_ray_inside_a_choice_is_refused() -> None:
    from ray import tune

    with pytest.raises(SpaceError) as caught:
        Space({"a": choice([{"lr": tune.grid_search([1, 2])}])})
    assert str(caught.value) == (
        "choice needs plain values, got a domain inside {'lr': {'grid_search': [1, 2]}} for 'a'; "
        "give the inner hyperparameter a name of its own and .when(...)"
    )


def of_a_module() -> None: ...


def test_what_files_hold_is_found_again() -> None:
    space = Space(
        {"layers": choice([(1, 2), (3,)]), "act": choice([of_a_module, Path]), "net": choice([{"f": of_a_module}])}
    )
    for config in space.grid():
        held = json.loads(json.dumps(recorded(config)))
        assert held["net"] == {"f": "tests.space.test_values.of_a_module"}
        assert space.restored(held) == config
        assert space.key(held) == space.key(config)
    assert space.dimensions["act"].describe() == "choice([tests.space.test_values.of_a_module, pathlib.Path])"


class Kind(Enum):
    ONE = 1
    TWO = 2


def test_objects_are_held_as_text_and_texts_may_look_like_addresses() -> None:
    space = Space(
        {"kind": choice(list(Kind)), "path": choice([Path("a"), Path("b")]), "text": choice(["x at 0x1", "y"])}
    )
    for config in space.grid():
        assert space.restored(json.loads(json.dumps(recorded(config)))) == config


@pytest.mark.parametrize("value", [lambda: None, object(), (1, object())])
def test_what_has_no_name_in_another_process_is_refused(value: object) -> None:
    with pytest.raises(SpaceError, match="choice needs values that a file can name"):
        Space({"act": choice([value, "relu"])})
