import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import SpaceError
from tuner.space import (
    Space,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

SPACE = Space(
    {
        "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
        "optimizer": choice(["adam", "sgd"]),
        "net": {"layers": randint(1, 4), "width": choice([8, 16])},
        "lr": loguniform(1e-4, 1e-1),
        "classes": 10,
    }
)
FINITE = Space(
    {
        "a": choice(["x", "y", "z"]),
        "b": randint(0, 3).when(a=["x", "y"]),
        "c": choice([1, 2]).when(b=2),
        "d": grid_search([True, False]),
    }
)


def test_a_sample_has_every_active_name_nested_and_the_constants() -> None:
    config = SPACE.sample(np.random.default_rng(0))
    assert set(config) >= {"optimizer", "net", "lr", "classes"}
    assert set(config["net"]) == {"layers", "width"}
    assert config["classes"] == 10


def test_an_inactive_dimension_is_absent_and_nan_when_encoded() -> None:
    generator = np.random.default_rng(0)
    for config in (SPACE.sample(generator) for _ in range(50)):
        assert ("momentum" in config) == (config["optimizer"] == "sgd")
        encoded = dict(zip(SPACE.dimensions, SPACE.encode(config), strict=True))
        assert math.isnan(encoded["momentum"]) == (config["optimizer"] == "adam")


def test_encoding_and_decoding_gives_the_configuration_back() -> None:
    generator = np.random.default_rng(1)
    for config in (FINITE.sample(generator) for _ in range(100)):
        assert FINITE.decode(FINITE.encode(config)) == config


def test_the_order_of_names_is_the_declared_one() -> None:
    config = SPACE.decode([0.9] * len(SPACE.dimensions))
    assert list(config) == ["momentum", "optimizer", "net", "lr", "classes"]


def test_size_and_grid_count_an_inactive_dimension_once() -> None:
    configs = list(FINITE.grid())
    assert FINITE.size == len(configs) == 2 * (2 * (2 + 2) + 1)
    assert len({FINITE.key(config) for config in configs}) == len(configs)
    assert SPACE.size == math.inf


def test_a_grid_of_an_infinite_space_is_refused_with_the_dimension() -> None:
    with pytest.raises(
        SpaceError, match=r"^a grid needs a finite set of values, got loguniform\(0.0001, 0.1\) for 'lr'"
    ):
        list(Space({"lr": loguniform(1e-4, 1e-1)}).grid())


def test_equal_configurations_share_a_key() -> None:
    space = Space({"x": uniform(0, 2), "betas": choice([[0.9, 0.99], [0.5, 0.9]])})
    assert space.key({"x": 1, "betas": (0.9, 0.99)}) == space.key({"betas": [0.9, 0.99], "x": 1.0})
    assert space.key({"x": 1.0, "betas": [0.5, 0.9]}) != space.key({"x": 1.0, "betas": [0.9, 0.99]})


def test_a_partial_point_is_completed_with_its_own_values_kept() -> None:
    config = SPACE.complete({"optimizer": "sgd", "lr": 0.01}, np.random.default_rng(0))
    assert (config["optimizer"], config["lr"]) == ("sgd", 0.01)
    assert set(config) == {"momentum", "optimizer", "net", "lr", "classes"}


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"lr": 1}, "start_from[0] needs values inside the space, got lr=1 outside of loguniform(0.0001, 0.1); change the value or widen the space"),
        ({"net": {"layers": 4}}, "start_from[0] needs values inside the space, got net.layers=4 outside of randint(1, 4); change the value or widen the space"),
        ({"net": {"depth": 4}}, "start_from[0]: 'net.depth' is not in the space; did you mean 'net.width'?"),
        ({"optimizer": "adam", "momentum": 0.9}, "start_from[0]: 'momentum' is part of a configuration only when optimizer in ['sgd']; leave it out"),
        ({"net": 4}, "start_from[0]: 'net' is not in the space; it has momentum, optimizer, net.layers, net.width, lr, classes"),
        ({"net": {"layers": True}}, "start_from[0] needs values inside the space, got net.layers=True outside of randint(1, 4); change the value or widen the space"),
        ({"classes": 5}, "start_from[0]: 'classes' is the constant 10 in the space, got 5; leave it out"),
    ],
)  # fmt: skip
def test_a_point_outside_of_the_space_is_refused(point: dict[str, object], message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        SPACE.check(point, where="start_from[0]")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"a": uniform(0, 1).when(b=1)}, "when needs another dimension of the space, got 'b' for 'a'; it has a"),
        ({"a": choice([1]).when(a=1)}, "when needs another dimension, got 'a' on itself; remove the condition"),
        (
            {"a": choice([1]).when(b=2), "b": choice([1, 3])},
            "when needs a value that 'b' can take, got b=2 for 'a', but it is choice([1, 3]); correct one",
        ),
        (
            {"a.b": uniform(0, 1)},
            "a hyperparameter's name is a text without dots, got 'a.b'; nest dicts instead of dots",
        ),
        ({"": 1}, "a hyperparameter's name is a text without dots, got ''; nest dicts instead of dots"),
        ({"net": {3: 1}}, "a hyperparameter's name is a text without dots, got 3; nest dicts instead of dots"),
        ([1, 2], "space needs a dict of names and domains, got [1, 2]; write space={...}"),
        (
            {"optimizer": choice(["adam", "sgd"]), "momentum": uniform(0, 1).when(optimiser="sgd")},
            "when needs another dimension of the space, got 'optimiser' for 'momentum'; did you mean 'optimizer'?",
        ),
        (
            {"n": 3, "a": uniform(0, 1).when(n=[3, 4])},
            "when needs a value that 'n' can take, got n=4 for 'a', but it is 3; correct one",
        ),
        (
            {"n": randint(0, 5), "a": uniform(0, 1).when(n=5)},
            "when needs a value that 'n' can take, got n=5 for 'a', but it is randint(0, 5); correct one",
        ),
        (
            {"x": uniform(0, 1), "a": choice([1]).when(b=1), "b": choice([1]).when(c=1), "c": choice([1]).when(a=1)},
            "conditions need an order, got a cycle through 'a', 'b', 'c'; break it",
        ),
        (
            {"net": {"a": choice([1]).when(b=1), "b": choice([1]).when(a=1)}},
            "conditions need an order, got a cycle through 'net.a', 'net.b'; break it",
        ),
        (
            {"net": {"lr": loguniform(0, 1)}},
            "loguniform needs low > 0, got low=0 for 'net.lr'; use uniform or raise low",
        ),
        (
            {"net": {"lrs": [uniform(0, 1)]}},
            f"a constant needs to be plain, got a domain inside {[uniform(0, 1)]!r} for 'net.lrs'; name each one",
        ),
    ],
)
def test_a_space_that_cannot_work_is_refused(declaration: dict[str, object], message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space(declaration)
    assert str(caught.value) == message


def test_fixing_a_dimension_makes_it_a_constant_and_settles_conditions() -> None:
    adam, sgd = SPACE.fix({"optimizer": "adam"}), SPACE.fix({"optimizer": "sgd", "net.layers": 2})
    assert "momentum" not in adam.names
    assert sgd.dimensions["momentum"].conditions == ()
    assert sgd.constants == {"optimizer": "sgd", "net.layers": 2, "classes": 10}
    with pytest.raises(
        SpaceError, match=r"^'optimiser' is not a hyperparameter of the study; did you mean 'optimizer'\?$"
    ):
        SPACE.fix({"optimiser": "adam"})


def test_the_same_generator_gives_the_same_configuration_in_any_process() -> None:
    program = (
        "import numpy as np; from tests.space.test_space import SPACE; "
        "print([SPACE.sample(np.random.default_rng([0, n])) for n in range(5)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@st.composite
def finite_spaces(draw: st.DrawFn) -> Space:
    """Up to six dimensions in two sections, each under conditions on up to two of those before it."""
    declared: dict[str, Any] = {"top": {}, "constant": draw(st.sampled_from([0, "x"]))}
    names: list[str] = []
    for index in range(draw(st.integers(1, 6))):
        domain = draw(st.sampled_from([choice([0, 1]), choice([1, 2, 3]), randint(0, 2), quniform(0, 1, 0.5)]))
        for other in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []:
            domain = domain.when(**{other: draw(st.sampled_from([1, [1], [1.0]]))})
        names.append(f"n{index}")
        if draw(st.booleans()) and not domain.conditions:
            declared["top"][names.pop()] = domain
        else:
            declared[names[-1]] = domain
    if not declared["top"]:
        del declared["top"]
    return Space(dict(reversed(declared.items())))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(space=finite_spaces(), seed=st.integers(0, 1000))
def test_in_any_finite_space_size_grid_samples_encoding_and_check_agree(space: Space, seed: int) -> None:
    configs = list(space.grid())
    keys = {space.key(config) for config in configs}
    assert space.size == len(configs) == len(keys)
    for config in configs:
        assert space.decode(space.encode(config)) == config
        assert space.check(config, "point") == space.project(config) == config
        assert space.active(config) == space.flatten(config).keys() & space.dimensions.keys()
        assert space.unflatten(space.flatten(config)) == config
    generator = np.random.default_rng(seed)
    drawn = [space.sample(generator) for _ in range(20)]
    assert {space.key(config) for config in drawn} <= keys
    assert all(space.complete(config, generator) == config for config in drawn)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(space=finite_spaces(), data=st.data())
def test_fixing_a_name_leaves_the_configurations_that_have_its_value(space: Space, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([n for n in space.dimensions if not space.dimensions[n].conditions]))
    value = data.draw(st.sampled_from(space.dimensions[name].values()))
    fixed = space.fix({name: value})
    left = [config for config in space.grid() if space.flatten(config)[name] == value]
    assert sorted(map(repr, fixed.grid())) == sorted(map(repr, left))
    assert name not in fixed.dimensions


def test_fixing_keeps_the_declared_order_and_may_add_names() -> None:
    fixed = SPACE.fix({"lr": 0.01, "epochs": 3}, {"epochs": "epochs"})
    assert fixed.names == ["momentum", "optimizer", "net.layers", "net.width", "lr", "classes", "epochs"]
    assert fixed.constants == {"lr": 0.01, "classes": 10, "epochs": 3}
    assert SPACE.fix({"classes": 5}).constants == {"classes": 5}


def test_a_fixed_value_may_lie_outside_of_the_domain() -> None:
    assert SPACE.fix({"lr": 5.0}).constants["lr"] == 5.0


def test_projecting_keeps_what_fits() -> None:
    old = {"lr": 0.01, "optimizer": "adam", "momentum": 0.9, "net": {"layers": 7, "width": 8}, "classes": 3, "gone": 1}
    assert SPACE.project(old) == {"lr": 0.01, "optimizer": "adam", "net": {"width": 8}, "classes": 10}
    assert SPACE.project({"momentum": 0.9}) == {"classes": 10}  # whether it counts is not known


def test_checking_coerces_and_fills_in_constants_but_nothing_else() -> None:
    checked = SPACE.check({"net": {"layers": 2.0}, "momentum": 0.9}, "point")
    assert checked == {"momentum": 0.9, "net": {"layers": 2}, "classes": 10}
    assert type(checked["net"]["layers"]) is int


def test_numbers_of_numpy_become_plain_ones() -> None:
    space = Space(
        {
            "a": choice(np.arange(3)),
            "b": randint(*np.array([1, 4])),
            "c": np.float64(0.5),
            "d": choice([np.array([1, 2]), (np.int32(3),)]),
            "e": sample_from(lambda config: np.int64(config["b"]) * 2),
        }
    )  # fmt: skip
    config = space.sample(np.random.default_rng(0))
    assert [type(value) for value in config.values()][:3] == [int, int, float]
    assert type(config["e"]) is int
    assert space.dimensions["d"].values() == [[1, 2], (3,)]
    checked = space.check({"a": np.int64(2), "b": np.int64(3)}, "point")
    assert checked == {"a": 2, "b": 3, "c": 0.5}
    assert {type(value) for value in checked.values()} == {int, float}


def test_the_order_of_keys_does_not_matter_to_a_key_but_types_do() -> None:
    space = Space({"a": choice([1, True, "1"]), "b": choice([{1: "x", "y": 2}, {(1, 2): 3}])})
    first, second = space.dimensions["b"].values()
    assert space.size == 6
    assert space.key({"b": first, "a": 1}) == space.key({"a": 1, "b": first}) != space.key({"a": 1, "b": second})
    assert len({space.key({"a": value}) for value in (1, True, "1")}) == 3


def test_an_empty_space_and_one_of_constants_have_one_configuration() -> None:
    assert (Space({}).size, list(Space({}).grid())) == (1, [{}])
    assert (Space({"a": {"b": [1, 2]}}).size, list(Space({"a": {"b": [1, 2]}}).grid())) == (1, [{"a": {"b": [1, 2]}}])


def test_dicts_that_are_values_stay_whole() -> None:
    space = Space({"weights": choice([{"cat": 1}, {"dog": 2}]), "empty": {}})
    assert list(space.grid()) == [{"weights": {"cat": 1}, "empty": {}}, {"weights": {"dog": 2}, "empty": {}}]
    assert space.check({"weights": {"dog": 2}}, "point") == {"weights": {"dog": 2}, "empty": {}}


def test_spaces_are_equal_where_their_declarations_are() -> None:
    def declared(high: float) -> Space:
        return Space({"a": choice([1, 2]), "b": {"c": uniform(0, high).when(a=1)}, "d": 4})

    assert declared(1) == declared(1)
    assert declared(1) != declared(2)
    assert declared(1) != Space({"a": choice([1, 2]), "b": {"c": uniform(0, 1)}, "d": 4})
    assert eval(repr(Space({"a": 1, "b": {"c": "x"}}))) == Space({"a": 1, "b": {"c": "x"}})


def test_snap_is_the_encoding_of_what_a_point_decodes_to() -> None:
    space = Space(
        {
            "a": uniform(0, 1),
            "b": quniform(0, 1, 0.1),
            "c": qloguniform(0.01, 1, 0.01),
            "d": randint(1, 9),
            "e": qlograndint(16, 512, 16),
            "f": lograndint(1, 1000),
            "g": choice(["x", "y", "z"]),
            "h": randn(0, 1),
            "i": qrandn(0, 1, 0.5),
            "j": uniform(0, 1).when(g="x"),
            "k": choice([1, 2]).when(g=["x", "y"]),
            "l": randint(0, 3).when(k=2),
            "m": uniform(0, 1).when(constant=3),
            "constant": 3,
        }
    )
    units = np.random.default_rng(0).random((500, len(space.dimensions)))
    expected = np.array([space.encode(space.decode(unit)) for unit in units])
    np.testing.assert_allclose(space.snap(units), expected, atol=1e-12)
    assert space.snap(np.zeros((0, len(space.dimensions)))).shape == (0, 13)
