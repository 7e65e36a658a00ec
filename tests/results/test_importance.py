from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.importance import TASKS, Tally, said, searched
from tuner import choice, loguniform, randint, uniform
from tuner.results.importance import Importance, headline, importance
from tuner.space import Space

PLANTED = Space({"most": loguniform(1e-4, 1), "some": uniform(5, 7), "none": uniform(0, 1), "nor": randint(0, 9)})


def linear(unit: np.ndarray) -> float:
    return float(2 * unit[0] + unit[1])


def bent(unit: np.ndarray) -> float:
    return float(((unit[0] - 0.5) ** 2) * np.sqrt(0.8 * 180) + unit[1] * np.sqrt(0.2 * 12))


@pytest.mark.parametrize("function", [linear, bent])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
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


# What may be said of it


def told(shares: dict[str, list[float]], trials: int = 40) -> list[Importance]:
    """Importances of shares in ten resamples, each of which leads as often as it is the largest."""
    leaders = np.array(list(shares.values())).argmax(axis=0).tolist()
    found = [
        Importance(name, float(np.mean(each)), float(np.std(each)), trials, leaders.count(place) / len(leaders))
        for place, (name, each) in enumerate(shares.items())
    ]
    return sorted(found, key=lambda one: -one.share)


def test_one_that_nearly_surely_leads_is_named() -> None:
    found = headline(told({"batch_size": [0.1] * 10, "lr": [0.8] * 10}))
    assert (found.leader, found.rivals) == ("lr", ())
    assert found.text == "lr matters most: 80% ± 0% of the variance"


def test_nothing_explains_all_for_sure() -> None:
    found = headline(told({"batch_size": [0.0] * 10, "lr": [0.999] * 10}))
    assert found.text == "lr matters most: nearly all of the variance"


def test_two_that_lead_in_turns_cannot_be_told_apart() -> None:
    found = headline(told({"lr": [0.52] * 5 + [0.3] * 5, "batch_size": [0.4] * 10, "momentum": [0.1] * 10}))
    assert (found.leader, found.rivals) == (None, ("lr", "batch_size"))
    assert found.text == "lr and batch_size can't be distinguished"


def test_three_that_lead_in_turns_cannot_be_told_apart() -> None:
    turns = {"a": [0.9] * 4 + [0.1] * 6, "b": [0.5] * 4 + [0.8] * 3 + [0.1] * 3, "c": [0.0] * 7 + [0.9] * 3}
    assert headline(told(turns)).text == "b, a and c can't be distinguished"


def test_where_any_may_lead_there_are_too_few_trials() -> None:
    turns = {str(k): [0.9 if k == turn % 5 else 0.1 for turn in range(10)] for k in range(5)}
    assert headline(told(turns)).text == "Too few trials to tell which of 5 hyperparameters matters most"


def test_ten_trials_name_nobody() -> None:
    """A share of 77 ± 28 % was said to matter most."""
    assert headline(told({"lr": [0.77] * 10, "momentum": [0.1] * 10}, trials=10)).leader is None
    assert headline([]).text == "Too few trials to tell what matters"


def test_a_single_hyperparameter_does_not_matter_most() -> None:
    """Of one, a share of 100% ± 0% is no finding."""
    assert headline(told({"lr": [0.9] * 10})).text == "lr has no other hyperparameter to be compared with"


def test_a_process_that_is_unsure_does_not_silence_trees_that_are_sure() -> None:
    """One explains nearly all there is, and the other was tried in a corner only, where the process knows little."""
    generator = np.random.default_rng(1)
    configs = [{"a": value, "b": generator.uniform(0, 0.1)} for value in generator.uniform(0, 1, 25)]
    space = Space({"a": uniform(0, 1), "b": uniform(0, 1)})
    values = [config["a"] + 0.02 * generator.standard_normal() for config in configs]
    found = importance(space, configs, values)
    assert headline(found).leader == "a"
    assert found[0].leads < 1


def test_draws_of_what_is_unsure_make_shares_unsure() -> None:
    generator = np.random.default_rng(0)
    configs = [PLANTED.sample(generator) for _ in range(40)]
    values = [linear(PLANTED.encode(config)) for config in configs]
    doubtful = np.array(values) + generator.standard_normal((40, 40))
    sure, unsure = importance(PLANTED, configs, values), importance(PLANTED, configs, values, draws=doubtful.tolist())
    assert unsure[0].deviation > 2 * sure[0].deviation


@pytest.mark.slow
def test_headlines_of_simulated_searches_are_right_or_say_that_they_cannot_tell() -> None:
    """A part of benchmarks/importance.py: six spaces, with early stopping, by the default algorithm."""
    tally = Tally()
    for name, task in TASKS.items():
        for seed in range(4):
            tally.add(said(searched(name, "default", seed, 30)), task.shares())
    assert tally.figures["right"] >= 0.8  # 0.92 of many searches, of 24 within 0.11
    assert tally.figures["clear_named"] >= 0.3
