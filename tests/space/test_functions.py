"""Values that a function gives: `sample_from`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tuner.errors import SpaceError
from tuner.space import (
    Config,
    Space,
    choice,
    quniform,
    randint,
    sample_from,
)


@pytest.mark.parametrize(
    "function", [lambda spec: spec.config.lr * 2, lambda config: config["lr"] * 2, lambda config: config.lr * 2]
)
def test_sample_from_sees_the_rest_of_the_configuration(function: object) -> None:
    space = Space({"double": sample_from(function), "lr": quniform(0.1, 1, 0.1)})  # type: ignore[arg-type]
    config = space.sample(np.random.default_rng(3))
    assert config["double"] == config["lr"] * 2


def test_a_dimension_may_depend_on_a_function() -> None:
    space = Space(
        {
            "x": choice([5]).when(even=True),
            "even": sample_from(lambda config: config["n"] % 2 == 0),
            "n": randint(0, 10),
        }
    )
    generator = np.random.default_rng(0)
    configs = [space.sample(generator) for _ in range(30)]
    assert {config["even"] for config in configs} == {True, False}
    assert all(("x" in config) == (config["n"] % 2 == 0) == config["even"] for config in configs)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda config: config["lrr"], "got KeyError: 'lrr' for 'f' from {'lr': 0.5}"),
        (lambda spec: spec.config.lrr, "got AttributeError: the configuration has no 'lrr' yet for 'f' from {'lr': 0.5}"),
        (lambda config: 1 / 0, "got ZeroDivisionError: division by zero for 'f' from {'lr': 0.5}"),
    ],
)  # fmt: skip
def test_a_function_that_fails_is_refused_with_what_it_saw(function: Callable[[Any], Any], message: str) -> None:
    space = Space({"f": sample_from(function), "lr": 0.5})
    with pytest.raises(SpaceError) as caught:
        space.sample(np.random.default_rng(0))
    assert str(caught.value) == (
        f"sample_from needs a function of what was sampled before, {message}; correct the function"
    )


def test_sample_from_sees_nested_names_in_both_styles() -> None:
    def by_item(config: Config) -> int:
        return int(config["net"]["width"] * 2)

    space = Space(
        {
            "net": {"width": choice([8, 16]), "twice": sample_from(lambda spec: spec.config.net.width * 2)},
            "twice": sample_from(by_item),
        }
    )
    config = space.sample(np.random.default_rng(0))
    assert config["net"]["twice"] == config["twice"] == config["net"]["width"] * 2
