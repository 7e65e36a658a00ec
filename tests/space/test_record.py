import json

import numpy as np
import pytest

from tuner import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from tuner.space import Space, recorded_space, space_record

SPACES = [
    {"lr": loguniform(1e-4, 3e-3), "x": uniform(-1, 0.1 + 0.2), "k": "constant", "none": None},
    {"a": quniform(0, 1, 0.1), "b": qloguniform(0.01, 1, 0.01), "c": qrandn(0, 2, 0.5), "d": randn(1, 3)},
    {"a": randint(0, 5), "b": qrandint(8, 64, 8), "c": lograndint(1, 1025), "d": qlograndint(8, 512, 8)},
    {"a": choice(["adam", 'with "quotes"', None, True, 1, 2.5, (3, 4), [5], {"n": 6}]), "b": grid_search([1, 2])},
    {
        "o": choice(["adam", "sgd"]),
        "m": uniform(0.5, 1).when(o="sgd"),
        "n": {"p": choice([1, 2]), "q": uniform(0, 1).when(p=[1, 2])},
    },
]


@pytest.mark.parametrize("declared", SPACES, ids=range(len(SPACES)))
def test_a_space_comes_back_from_json(declared: dict[str, object]) -> None:
    space = Space(declared)
    found = recorded_space(json.loads(json.dumps(space_record(space))))
    assert found.names == space.names
    for seed in range(20):
        config = space.sample(np.random.default_rng(seed))
        assert found.key(found.sample(np.random.default_rng(seed))) == space.key(config)
        np.testing.assert_array_equal(found.encode(json.loads(json.dumps(config))), space.encode(config))


def test_what_is_no_plain_data_is_left_out_with_the_conditions_on_it() -> None:
    space = Space(
        {
            "x": uniform(0, 1),
            "function": choice([len, sum]),
            "double": sample_from(lambda config: config["x"] * 2),
            "y": uniform(0, 1).when(function=len),
        }
    )
    found = recorded_space(json.loads(json.dumps(space_record(space), default=str)))
    assert found.names == ["x", "y"]
    assert found == Space({"x": uniform(0, 1), "y": uniform(0, 1)})


def test_text_that_is_no_domain_is_never_run() -> None:
    record = {
        "a": {"domain": "__import__('os').getcwd()"},
        "b": {"domain": "uniform(0, open)"},
        "c": {"domain": "uniform(1, 0)"},
        "d": {"domain": "uniform("},
        "e": {"domain": "uniform(0, 1)"},
    }
    assert recorded_space(record).names == ["e"]


def test_values_of_steps_in_an_old_record_are_values_still() -> None:
    space = recorded_space({"size": {"domain": "quniform(32, 96, 32)"}, "lr": {"domain": "qloguniform(0.1, 0.4, 0.1)"}})
    for size, rate in ((32.0, 0.1), (96.0, 0.4), (64.0, 0.30000000000000004)):
        config = space.check({"size": size, "lr": rate}, "trial")
        assert space.decode(space.encode(config)) == config == {"size": size, "lr": round(rate, 1)}
