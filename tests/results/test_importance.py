from collections.abc import Callable

import numpy as np
import pytest

from tuner import choice, loguniform, randint, uniform
from tuner.results.importance import importance
from tuner.space import Space

PLANTED = Space({"most": loguniform(1e-4, 1), "some": uniform(5, 7), "none": uniform(0, 1), "nor": randint(0, 9)})


def linear(unit: np.ndarray) -> float:
    return float(2 * unit[0] + unit[1])


def bent(unit: np.ndarray) -> float:
    return float(((unit[0] - 0.5) ** 2) * np.sqrt(0.8 * 180) + unit[1] * np.sqrt(0.2 * 12))


@pytest.mark.parametrize("function", [linear, bent])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_planted_function_is_made_of_is_found(function: Callable[[np.ndarray], float], seed: int) -> None:
    generator = np.random.default_rng(seed)
    configs = [PLANTED.sample(generator) for _ in range(200)]
    found = importance(PLANTED, configs, [function(PLANTED.encode(config)) for config in configs])
    assert [one.name for one in found[:2]] == ["most", "some"]
    shares = {one.name: one.share for one in found}
    assert shares == pytest.approx({"most": 0.8, "some": 0.2, "none": 0, "nor": 0}, abs=0.05)
    assert all(0 <= one.deviation < 0.05 for one in found)


def test_what_matters_only_together_is_nobodys_share() -> None:
    space = Space({"a": uniform(-1, 1), "b": uniform(-1, 1)})
    generator = np.random.default_rng(0)
    configs = [space.sample(generator) for _ in range(300)]
    found = importance(space, configs, [config["a"] * config["b"] for config in configs])
    assert sum(one.share for one in found) < 0.2


def test_a_choice_and_what_depends_on_it() -> None:
    space = Space({"kind": choice(["a", "b"]), "x": uniform(0, 1).when(kind="b")})
    generator = np.random.default_rng(0)
    configs = [space.sample(generator) for _ in range(100)]
    found = importance(space, configs, [float(config["kind"] == "b") for config in configs])
    assert found[0].name == "kind"
    assert found[0].share > 0.8


def test_fewer_trials_are_less_sure() -> None:
    def spread(trials: int) -> float:
        generator = np.random.default_rng(0)
        configs = [PLANTED.sample(generator) for _ in range(trials)]
        return max(one.deviation for one in importance(PLANTED, configs, [linear(PLANTED.encode(c)) for c in configs]))

    assert spread(10) > 3 * spread(300)


def test_nothing_is_said_of_too_few_trials_or_equal_values() -> None:
    config = {"most": 0.1, "some": 6.0, "none": 0.5, "nor": 3}
    assert importance(PLANTED, [config] * 3, [1.0, 2.0, 3.0]) == []
    assert importance(PLANTED, [config] * 5, [1.0] * 5) == []
    assert importance(Space({"k": 1}), [{"k": 1}] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]) == []


def test_the_same_trials_give_the_same_shares() -> None:
    generator = np.random.default_rng(0)
    configs = [PLANTED.sample(generator) for _ in range(30)]
    values = [linear(PLANTED.encode(config)) for config in configs]
    assert importance(PLANTED, configs, values) == importance(PLANTED, configs, values)
