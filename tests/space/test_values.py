"""Which values are the same, and that none depends on numpy's types, noise of floats, or the hash seed."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpaceError
from tuner.space import Domain, Space, choice, qloguniform, quniform, randint, sample_from, uniform
from tuner.space.values import canonical, recorded, same, value_of

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


def test_functions_and_classes_are_found_again_by_their_names() -> None:
    space = Space(
        {"layers": choice([(1, 2), (3,)]), "act": choice([of_a_module, Path]), "net": choice([{"f": of_a_module}])}
    )
    for config in space.grid():
        held = value_of(json.loads(json.dumps(recorded(config))))
        assert held["net"] == {"f": "tests.space.test_values.of_a_module"}
        assert space.restored(held) == config
        assert space.key(held) == space.key(config)
    assert space.dimensions["act"].describe() == "choice([tests.space.test_values.of_a_module, pathlib.Path])"


class Kind(Enum):
    ONE = 1


class Whole(IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: int


@dataclass(frozen=True)
class Declared:
    x: int


@pytest.mark.parametrize(
    "value",
    [
        lambda: None, object(), (1, object()), Kind.ONE, Whole.ONE, Point(1), Declared(1), b"x", 1j, Decimal("0.1"),
        Fraction(1, 3), datetime(2026, 1, 1), np.longdouble(1), Point(1)._asdict, "\udcff", {"a": [Kind.ONE]}, range(3), 10**5000,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_readers_of_a_run_would_not_get_is_refused(value: object) -> None:
    rule = "needs values that the files of a run can hold, got "
    for where, declared in (("choice", choice([value, "relu"])), ("a constant", value)):
        if isinstance(declared, dict):
            continue  # a section, with constants of its own
        if where == "a constant" and (callable(value) or isinstance(value, range)):
            continue  # refused as what may be meant for a domain
        with pytest.raises(SpaceError, match=f"^{where} {rule}.* for 'act'; use numbers, texts, or lists of them, and"):
            Space({"act": declared})
    space = Space({"act": sample_from(lambda: value)})
    with pytest.raises(SpaceError, match=f"^sample_from {rule}"):
        space.sample(np.random.default_rng(0))
    with pytest.raises(SpaceError, match=r"^point needs "):
        space.check({"act": value}, "point")


def test_a_function_that_returns_a_function_is_refused() -> None:
    with pytest.raises(
        SpaceError, match=r"^sample_from needs values that the files of a run can hold, got <function of"
    ):
        Space({"act": sample_from(lambda: of_a_module)}).sample(np.random.default_rng(0))


def test_a_function_and_a_text_that_is_its_name_are_refused() -> None:
    name = canonical(of_a_module)
    with pytest.raises(SpaceError, match=r"^choice needs other texts than its functions' names, got both for 'act'"):
        Space({"act": choice([of_a_module, name])})
    assert Space({"act": of_a_module}).restored({"act": name}) == {"act": of_a_module}


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        ([1.0, math.inf], "inf", math.inf), (["inf", math.inf], "inf", "inf"), ([1, 1.0, True], 1.0, 1.0),
        ([1, 1.0, True], True, True), ([0.0, -0.0], -0.0, -0.0), ([(1, (2, 3)), 4], [1, [2, 3]], (1, (2, 3))),
        ([Path("a"), "b"], "a", Path("a")), ([frozenset({1}), 2], [1], frozenset({1})), ([1, 2], 2.0, 2),
    ],
)  # fmt: skip
def test_a_given_value_is_the_option_of_its_type_or_the_only_one_it_can_be(
    options: list[Any], given: Any, expected: Any
) -> None:
    found = Space({"x": choice(options)}).check({"x": given}, "point")["x"]
    assert (type(found), repr(found)) == (type(expected), repr(expected))


def test_a_text_that_may_be_one_of_two_options_is_refused() -> None:
    with pytest.raises(SpaceError, match="point needs values inside the space, got x='inf' outside of choice"):
        Space({"x": choice([math.inf, Path("inf")])}).check({"x": "inf"}, "point")


def test_conditions_and_counts_tell_types_apart() -> None:
    space = Space({"a": choice([1, 1.0, True, math.nan]), "b": choice([5, 6]).when(a=[1, math.nan])})
    assert [(type(c["a"]), c.get("b")) for c in space.grid()] == [
        (int, 5), (int, 6), (float, None), (bool, None), (float, 5), (float, 6)
    ]  # fmt: skip
    assert space.size == 6
    assert Space({"a": choice([1])}) != Space({"a": choice([True])})
    assert Space({"a": choice([1, 2]), "b": choice([5]).when(a=1)}).active({"a": 1.0}) == {"a", "b"}
