"""Real objects of ray.tune as parts of a space."""

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tuner.errors import SpaceError
from tuner.space import (
    Domain,
    SampleFrom,
    Space,
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
from tuner.space.ray_compat import from_ray

PAIRS: dict[str, tuple[tuple[Any, ...], Callable[..., Domain]]] = {
    "uniform": ((-1, 2.5), uniform),
    "quniform": ((0, 1, 0.25), quniform),
    "loguniform": ((1e-4, 1e-1), loguniform),
    "qloguniform": ((0.1, 10, 0.1), qloguniform),
    "randn": ((1, 2), randn),
    "qrandn": ((1, 2, 0.5), qrandn),
    "randint": ((-2, 5), randint),
    "qrandint": ((0, 10, 2), qrandint),
    "lograndint": ((1, 100), lograndint),
    "qlograndint": ((2, 64, 2), qlograndint),
    "choice": ((["x", None, 3],), choice),
    "grid_search": (([1, 2],), grid_search),
}


@pytest.mark.parametrize("name", PAIRS)
def test_each_of_rays_domains_becomes_ours_of_the_same_name_and_arguments(name: str) -> None:
    from ray import tune

    arguments, ours = PAIRS[name]
    assert from_ray(getattr(tune, name)(*arguments)) == ours(*arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "values"),
    [
        ("randint", (1, 5), [1, 2, 3, 4]),
        ("lograndint", (1, 5), [1, 2, 3, 4]),
        ("qrandint", (0, 9, 3), [0, 3, 6, 9]),
        ("qrandint", (1, 5, 1), [1, 2, 3, 4]),  # in steps of 1 Ray leaves the upper bound out
        ("qrandint", (1, 5), [1, 2, 3, 4]),
        ("qrandint", (-4, 10, 3), [-3, 0, 3, 6, 9]),  # bounds between two steps
        ("qlograndint", (1, 5, 1), [1, 2, 3, 4]),
        ("qlograndint", (3, 10, 4), [4, 8]),
        ("quniform", (0, 1, 0.25), [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("qloguniform", (0.25, 1, 0.25), [0.25, 0.5, 0.75, 1.0]),
    ],
)
def test_ours_take_the_values_that_rays_take(name: str, arguments: tuple[Any, ...], values: list[float]) -> None:
    from ray import tune

    import tuner

    np.random.seed(0)
    rays = getattr(tune, name)(*arguments)
    ours = getattr(tuner, name)(*arguments)
    assert sorted({rays.sample() for _ in range(400)}) == values
    assert from_ray(rays).values() == ours.values() == values


def test_a_tune_space_is_accepted_as_it_is() -> None:
    from ray import tune

    space = Space(
        {
            "net": {"layers": tune.randint(1, 5), "act": tune.choice(["relu", "tanh"])},
            "lr": tune.loguniform(1e-4, 1e-1),
            "seed": tune.grid_search([0, 1]),
            "width": tune.sample_from(lambda spec: 2**spec.config.net.layers),
            "twice": tune.sample_from(lambda config: config["net"]["layers"] * 2),
            "classes": 10,
        }
    )
    generator = np.random.default_rng(0)
    for config in (space.sample(generator) for _ in range(50)):
        assert list(config) == ["net", "lr", "seed", "width", "twice", "classes"]
        assert config["width"] == 2 ** config["net"]["layers"]
        assert config["twice"] == config["net"]["layers"] * 2
        assert 1e-4 <= config["lr"] <= 1e-1
    assert space.grid_dimensions == ["seed"]
    assert isinstance(space.dimensions["width"], SampleFrom)


def test_rays_and_our_domains_mix_and_ours_may_depend_on_rays() -> None:
    from ray import tune

    space = Space({"optimizer": tune.choice(["adam", "sgd"]), "momentum": uniform(0.8, 0.99).when(optimizer="sgd")})
    assert space.active({"optimizer": "adam"}) == {"optimizer"}
    assert space.active({"optimizer": "sgd"}) == {"optimizer", "momentum"}


def test_the_same_generator_draws_the_same_from_rays_domains_and_ours() -> None:
    from ray import tune

    rays = Space({name: getattr(tune, name)(*arguments) for name, (arguments, _) in PAIRS.items()})
    ours = Space({name: constructor(*arguments) for name, (arguments, constructor) in PAIRS.items()})
    assert rays == ours
    assert rays.sample(np.random.default_rng(5)) == ours.sample(np.random.default_rng(5))


def test_what_is_no_domain_comes_back_as_it_is() -> None:
    values: list[Any] = [None, 1, "x", [1], {"a": 1}, {"grid_search": 3}, {"grid_search": [1], "b": 2}, uniform(0, 1)]
    assert all(from_ray(value) is value for value in values)


def test_a_domain_of_ray_without_bounds_is_refused() -> None:
    from ray.tune.search.sample import Float

    with pytest.raises(SpaceError) as caught:
        Space({"x": Float(-math.inf, 1)})
    assert str(caught.value) == "uniform needs a finite number as low, got -inf for 'x'; write a number"


def test_an_object_of_ray_that_is_no_domain_is_refused() -> None:
    from ray.tune.search.sample import Uniform

    sampler = Uniform()
    with pytest.raises(SpaceError) as caught:
        Space({"x": sampler})
    assert str(caught.value) == (
        f"a space takes ray.tune's domains, got {sampler!r}, which is none; use the functions of tuner"
    )


def test_a_domain_of_ray_inside_a_value_is_refused() -> None:
    from ray import tune

    inner = tune.uniform(0, 1)
    for space, message in (
        (
            {"x": choice([[inner], 2])},
            f"choice needs plain values, got a domain inside {[inner]!r} for 'x'; give the inner hyperparameter a name "
            "of its own and .when(...)",
        ),
        (
            {"deep": {"x": [inner, 2]}},
            f"a constant needs to be plain, got a domain inside {[inner, 2]!r} for 'deep.x'; name each one",
        ),
    ):
        with pytest.raises(SpaceError) as caught:
            Space(space)
        assert str(caught.value) == message


def test_sample_from_of_ours_and_of_ray_are_the_same() -> None:
    from ray import tune

    def double(config: dict[str, Any]) -> float:
        return float(config["x"] * 2)

    assert from_ray(tune.sample_from(double)) == sample_from(double)


def test_a_space_of_our_domains_never_imports_ray() -> None:
    code = (
        "import sys; from tuner.space import *; Space({'x': uniform(0, 1), 'y': 3}); "
        "print([m for m in sys.modules if m.split('.')[0] == 'ray'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
