import math
import os
import subprocess
import sys

import numpy as np
import pytest

from tuner.errors import SpaceError
from tuner.space import Space, choice, grid_search, loguniform, quniform, randint, sample_from, uniform

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
        ([1, 2], "space needs a dict of names and domains, got [1, 2]; write space={...}"),
    ],
)
def test_a_space_that_cannot_work_is_refused(declaration: dict[str, object], message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space(declaration)
    assert str(caught.value) == message


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
    "function", [lambda spec: spec.config.lr * 2, lambda config: config["lr"] * 2, lambda config: config.lr * 2]
)
def test_sample_from_sees_the_rest_of_the_configuration(function: object) -> None:
    space = Space({"double": sample_from(function), "lr": quniform(0.1, 1, 0.1)})  # type: ignore[arg-type]
    config = space.sample(np.random.default_rng(3))
    assert config["double"] == config["lr"] * 2


def test_fixing_a_dimension_makes_it_a_constant_and_settles_conditions() -> None:
    adam, sgd = SPACE.fix({"optimizer": "adam"}), SPACE.fix({"optimizer": "sgd", "net.layers": 2})
    assert "momentum" not in adam.names
    assert sgd.dimensions["momentum"].conditions == ()
    assert sgd.constants == {"optimizer": "sgd", "net.layers": 2, "classes": 10}
    with pytest.raises(
        SpaceError, match=r"^'optimiser' is not a hyperparameter of the study; did you mean 'optimizer'\?$"
    ):
        SPACE.fix({"optimiser": "adam"})


def test_real_objects_of_ray_tune_are_accepted_as_they_are() -> None:
    from ray import tune

    space = Space(
        {
            "a": tune.uniform(0, 1), "b": tune.quniform(0, 1, 0.25), "c": tune.loguniform(1e-4, 1e-1),
            "d": tune.qloguniform(0.1, 10, 0.1), "e": tune.randn(1, 2), "f": tune.qrandn(1, 2, 0.5),
            "g": tune.randint(1, 5), "h": tune.qrandint(0, 10, 2), "i": tune.lograndint(1, 100),
            "j": tune.qlograndint(2, 64, 2), "k": tune.choice(["x", None]), "l": tune.grid_search([1, 2]),
            "m": tune.sample_from(lambda spec: spec.config.g + 1), "n": 5,
        }
    )  # fmt: skip
    assert [domain.describe().split("(")[0] for domain in space.dimensions.values()] == [
        *("uniform", "quniform", "loguniform", "qloguniform", "randn", "qrandn", "randint", "qrandint"),
        *("lograndint", "qlograndint", "choice", "grid_search", "sample_from"),
    ]
    assert [space.dimensions[name].values() for name in "gh"] == [[1, 2, 3, 4], [0, 2, 4, 6, 8, 10]]
    config = space.sample(np.random.default_rng(0))
    assert config["m"] == config["g"] + 1


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
