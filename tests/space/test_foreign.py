"""Real objects of ray.tune as parts of a space."""

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tuner import Random, Study
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
from tuner.space.foreign import own_domain

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
    assert own_domain(getattr(tune, name)(*arguments), "x") == ours(*arguments)


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
    assert own_domain(rays, "x").values() == ours.values() == values


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
    assert all(own_domain(value, "x") is value for value in values)


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
        f"a hyperparameter needs a domain of tuner or a constant, got {sampler!r} of ray for 'x'; use tuner's functions, "
        "as in uniform(0, 1)"
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

    assert own_domain(tune.sample_from(double), "x") == sample_from(double)


def test_a_space_of_our_domains_never_imports_ray() -> None:
    code = (
        "import sys; from tuner.space import *; Space({'x': uniform(0, 1), 'y': 3}); "
        "print([m for m in sys.modules if m.split('.')[0] == 'ray'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def refused(value: Any, **more: Any) -> str:
    """The message for a space with the value."""
    with pytest.raises(SpaceError) as caught:
        Space({"net": {"x": value}, **more})
    return str(caught.value)


def from_optuna(name: str, *arguments: Any, **options: Any) -> Any:
    optuna = pytest.importorskip("optuna")
    return getattr(optuna.distributions, name)(*arguments, **options)


def from_hyperopt(name: str, *arguments: Any, **options: Any) -> Any:
    from hyperopt import hp

    return getattr(hp, name)("x", *arguments, **options)


@pytest.mark.parametrize(
    ("made", "name", "arguments", "use"),
    [
        (from_optuna, "FloatDistribution", (1e-5, 0.1, True), "loguniform(1e-05, 0.1)"),
        (from_optuna, "FloatDistribution", (0, 1), "uniform(0, 1)"),
        (from_optuna, "FloatDistribution", (0, 1, False, 0.25), "quniform(0, 1, 0.25)"),
        (from_optuna, "FloatDistribution", (0.1, 1.1, False, 0.25), "tuner's functions, as in uniform(0, 1)"),
        (from_optuna, "IntDistribution", (1, 9), "randint(1, 10)"),
        (from_optuna, "IntDistribution", (1, 9, True), "lograndint(1, 10)"),
        (from_optuna, "IntDistribution", (1, 7, False, 2), "choice([1, 3, 5, 7])"),
        (from_optuna, "CategoricalDistribution", ([1, "a"],), "choice([1, 'a'])"),
        (from_optuna, "LogUniformDistribution", (1e-5, 0.1), "loguniform(1e-05, 0.1)"),
        (from_optuna, "IntUniformDistribution", (1, 9), "randint(1, 10)"),
        (from_hyperopt, "uniform", (-1, 2.5), "uniform(-1, 2.5)"),
        (from_hyperopt, "quniform", (32, 96, 32), "quniform(32, 96, 32)"),
        (from_hyperopt, "loguniform", (math.log(1e-5), math.log(0.1)), "loguniform(1e-05, 0.1)"),
        (from_hyperopt, "uniformint", (1, 5), "randint(1, 6)"),
        (from_hyperopt, "randint", (5,), "randint(0, 5)"),
        (from_hyperopt, "randint", (2, 7), "randint(2, 7)"),
        (from_hyperopt, "normal", (3, 2), "randn(3, 2)"),
        (from_hyperopt, "qnormal", (3, 2, 0.5), "qrandn(3, 2, 0.5)"),
        (from_hyperopt, "choice", (["a", 1],), "choice(['a', 1])"),
        (from_hyperopt, "pchoice", ([(0.3, "a"), (0.7, "b")],), "choice(['a', 'b'])"),
        (from_hyperopt, "choice", ([["a"], 1],), "tuner's functions, as in uniform(0, 1)"),
        (from_hyperopt, "lognormal", (0, 1), "tuner's functions, as in uniform(0, 1)"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_domain_of_another_library_is_refused_with_ours_of_the_same_values(
    made: Callable[..., Any], name: str, arguments: tuple[Any, ...], use: str
) -> None:
    value, library = made(name, *arguments), made.__name__.removeprefix("from_")
    message = refused(value)
    assert message.startswith("a hyperparameter needs a domain of tuner or a constant, got ")
    assert message.endswith(f" of {library} for 'net.x'; use {use}")
    assert repr(value)[:20].split("\n")[0] in message
    for hidden in ([value], {value}, (1, {"deep": value}), choice([1, value]), grid_search([[value]])):
        assert "got a domain inside" in refused(hidden)


def test_named_bounds_of_hyperopt_are_understood() -> None:
    assert refused(from_hyperopt("uniform", high=2, low=1)).endswith("use uniform(1, 2)")


def test_a_distribution_of_scipy_and_functions_that_were_not_called_are_refused() -> None:
    import scipy.stats
    from hyperopt import hp
    from ray import tune

    distribution = type(from_optuna("FloatDistribution", 0, 1))

    for value in (scipy.stats.loguniform(1e-5, 0.1), scipy.stats.uniform, hp.uniform, distribution, tune.uniform):
        assert refused(value).endswith("for 'net.x'; use tuner's functions, as in uniform(0, 1)")
    assert " of tuner for 'net.x'; use tuner's functions" in refused(loguniform)


@pytest.mark.parametrize(
    ("module", "parts", "use"),
    [
        ("ConfigSpace.hyperparameters", {"lower": 1, "upper": 5, "log": True}, "loguniform(1, 5)"),
        ("skopt.space.space", {"low": 1e-4, "high": 1, "prior": "log-uniform"}, "loguniform(0.0001, 1)"),
        ("skopt.space.space", {"categories": ("a", "b")}, "choice(['a', 'b'])"),
        ("syne_tune.config_space", {"lower": 0, "upper": 1}, "uniform(0, 1)"),
        ("nevergrad.parametrization.data", {}, "tuner's functions, as in uniform(0, 1)"),
        ("keras_tuner.engine.hyperparameters", {"values": [1, 2]}, "choice([1, 2])"),
        ("flaml.tune.sample", {"lower": 0, "upper": 1}, "uniform(0, 1)"),
    ],
)
def test_libraries_are_recognised_by_the_modules_of_their_classes(module: str, parts: dict[str, Any], use: str) -> None:
    kind = type("Real", (), {"__module__": module, **parts})
    value = type("Mine", (kind,), {})()
    assert refused(value).endswith(f" of {module.partition('.')[0]} for 'net.x'; use {use}")


@pytest.mark.parametrize(
    ("sweep", "use"),
    [
        ({"values": [16, 32]}, "choice([16, 32])"),
        ({"values": [16, 32], "probabilities": [0.5, 0.5]}, "choice([16, 32])"),
        ({"min": 0, "max": 5}, "randint(0, 6)"),
        ({"min": 0.0, "max": 5}, "uniform(0, 5)"),
        ({"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1}, "loguniform(1e-05, 0.1)"),
        ({"distribution": "uniform", "min": 1, "max": 5}, "uniform(1, 5)"),
        ({"distribution": "int_uniform", "min": 1, "max": 5}, "randint(1, 6)"),
        ({"distribution": "q_uniform", "min": 32, "max": 96, "q": 32}, "quniform(32, 96, 32)"),
        (
            {"distribution": "normal", "mu": 0, "sigma": 1},
            "tuner's functions, as in uniform(0, 1), or choice([{...}]) for a constant dict",
        ),
        ({"value": 64}, "tuner's functions, as in uniform(0, 1), or choice([{...}]) for a constant dict"),
    ],
)
def test_a_sweeps_parameter_is_refused_with_our_domain(sweep: dict[str, Any], use: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Study("sweep", trial=print, space={"net": {"x": sweep}}, metric="loss", mode="min")
    assert str(caught.value) == (
        f"a hyperparameter needs a domain of tuner or a constant, got {sweep!r} for 'x'; use {use}"
    )


def test_sections_whose_names_a_sweep_has_too_are_no_sweep() -> None:
    space = {
        "crop": {"min": uniform(0, 1), "max": 1},
        "values": {"q": 3},
        "clip": {"min": 0, "max": 1, "by": "norm"},
        "range": choice([{"min": 0, "max": 1}]),
    }
    study = Study("sections", trial=_take, space=space, metric="loss", mode="min")
    assert study.search_space.names == ["crop.min", "crop.max", "values.q", "clip.min", "clip.max", "clip.by", "range"]
    fixed = study.search_space.fix({"crop.min": 0.5})
    assert fixed.constants["crop.min"] == 0.5


def _take(config: dict[str, Any]) -> None:
    """A trial."""


@pytest.mark.parametrize(
    "value",
    [range(3), iter([1, 2]), (each for each in (1, 2)), lambda config: 0.1],
    ids=["range", "iterator", "generator", "lambda"],
)
def test_what_gives_values_one_by_one_is_no_constant(value: Any) -> None:
    assert refused(value).startswith("a constant needs to be plain, got ")
    assert refused(value).endswith(" for 'net.x'; use choice([...]) or sample_from(function)")


def test_lists_and_arrays_are_constants() -> None:
    space = Space({"x": [1, 2], "y": np.array([1.5, 2])})
    assert space.constants == {"x": [1, 2], "y": [1.5, 2.0]}


def test_a_domain_is_no_value_of_a_starting_point() -> None:
    value = from_optuna("FloatDistribution", 0, 1)
    for domain in (value, [value], {"deep": value}, uniform(0, 1)):
        for kind in (sample_from(lambda config: 1), uniform(0, 1), choice([1, 2]), 3):
            space = {"x": kind}
            with pytest.raises(SpaceError) as caught:
                Study("s", trial=_take, space=space, metric="loss", search=Random(), start_from=[{"x": domain}])
            assert f"needs values, got the domain {domain!r} for 'x'; choose a value" in str(caught.value)


def test_recognising_a_domain_imports_none_of_the_libraries() -> None:
    code = (
        "import sys, tuner, tuner.space; tuner.space.Space({'x': tuner.uniform(0, 1), 'y': print}); "
        "print(sorted({'ray', 'optuna', 'hyperopt', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
