"""Limits of what a network costs when it answers: what is declared, refused, and kept from being tried."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.results.simulated import simulated
from tuner import Budget, ImageClassifier, Latency, Random, Study, StudyError, choice, load_run, uniform
from tuner.errors import SpaceError
from tuner.history.run_info import write_info
from tuner.storage.folder import LocalFolder
from tuner.trial.inference_cost import InferenceCost, KnownCosts, key_of

COST = InferenceCost(latency_ms=2.0, fastest_ms=1.9, size_mb=40.0, memory_mb=90.0, flops=10**9)
SPACE = {"model": choice(["resnet18", "mobilenet_v2"]), "image_size": choice([32, 64]), "lr": uniform(0.001, 0.1)}
NAMES = ("model", "image_size")


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {"trial": ImageClassifier("digits", weights=None), "space": SPACE}
    settings |= {"limits": {"latency_ms": 3}, "budget": Budget(trials=30, max_epochs=3)}
    return Study("limited", **{**settings, **changes})


def costs(**limits: float) -> KnownCosts:
    """Of both models at both sizes: four times the pixels take four times as long, and one model is larger."""
    networks = {
        key_of({"model": model, "image_size": size}, NAMES): replace(COST, latency_ms=ms, size_mb=size_mb)
        for model, size_mb in (("resnet18", 45.0), ("mobilenet_v2", 9.0))
        for size, ms in ((32, 1.0), (64, 4.0))
    }
    return KnownCosts(limits, Latency(threads=2), networks, NAMES)


def test_what_is_above_a_limit_is_never_tried() -> None:
    limited = replace(study(), costs=costs(latency_ms=3, size_mb=20))
    proposals = tuner.search.Proposals(limited.problem, Random().build(limited.problem))
    tried = [proposals.suggest(number) for number in range(20)]
    assert {(one["model"], one["image_size"]) for one in tried if one} == {("mobilenet_v2", 32)}


def test_a_limit_and_the_users_own_constraint_both_hold() -> None:
    limited = replace(
        study(constraint=lambda config: config["model"] == "resnet18"), costs=costs(latency_ms=3)
    ).search_space
    assert limited.allows({"model": "resnet18", "image_size": 32, "lr": 0.01})
    assert not limited.allows({"model": "mobilenet_v2", "image_size": 32, "lr": 0.01})
    assert not limited.allows({"model": "resnet18", "image_size": 64, "lr": 0.01})


def test_what_is_above_a_limit_is_refused_with_what_its_network_costs() -> None:
    space = replace(study(), costs=costs(latency_ms=3, size_mb=20)).search_space
    for config in ({"model": "resnet18"}, {"model": "resnet18", "image_size": 32, "lr": 0.01}):
        with pytest.raises(
            SpaceError, match=r"limits need .*size_mb 20, got .*'resnet18'.*, whose network has .*45 MB as a file"
        ):
            space.complete(config, np.random.default_rng(0))
    own = replace(study(constraint=lambda config: config["lr"] < 0.05), costs=costs(latency_ms=9)).search_space
    with pytest.raises(SpaceError, match="constraint needs to allow the configuration"):
        own.complete({"model": "resnet18", "image_size": 32, "lr": 0.09}, np.random.default_rng(0))


def test_times_that_others_disturbed_are_known_as_such() -> None:
    assert not COST.disturbed
    assert replace(COST, fastest_ms=0.9).disturbed


def test_a_network_that_was_not_measured_does_not_count_as_keeping_a_limit() -> None:
    known = costs(latency_ms=3)
    assert known.of({"model": "resnet50", "image_size": 32}) is None
    assert not known.keeps({"model": "resnet50", "image_size": 32})


def test_costs_are_read_back_as_they_were_recorded() -> None:
    known = costs(latency_ms=3)
    assert KnownCosts.recorded(known.record()) == known


@pytest.mark.parametrize(
    "damage",
    [
        {"limits": {}},
        {"limits": {"latency_ms": None}},
        {"limits": {"speed": 3}},
        {"objective": "speed"},
        {"networks": [{"settings": {}}]},
        {"latency": {"threads": 0}},
        {"names": None},
        *(
            {"networks": [{**costs(latency_ms=3).record()["networks"][0], name: value}]}
            for name, value in (("flops", float("inf")), ("size_mb", 10**400), ("fastest_ms", [1]))
        ),
    ],
)
def test_damaged_costs_are_left_out_of_a_run(tmp_path: Path, damage: dict[str, Any]) -> None:
    run = simulated(tmp_path)
    info = {**run.info, "costs": {**costs(latency_ms=3).record(), **damage}}
    write_info(LocalFolder(tmp_path), info)
    again = load_run(tmp_path)
    assert again.costs is None
    assert any("costs of networks as costs" in each for each in again.damages)
    assert again.plot.tradeoff().layout.title.text == "The study has one metric, and no limits of costs"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"limits": {"latency": 3}}, "did you mean 'latency_ms'"),
        ({"limits": {"latency_ms": 0}}, "above 0"),
        ({"limits": {"latency_ms": float("nan")}}, "above 0"),
        ({"limits": {"latency_ms": "3"}}, "above 0"),
        ({"limits": 3}, "write limits={'latency_ms': 20}"),
        ({"latency": 3}, "latency needs a Latency"),
        ({"combine": "auto"}, "an average of several costs more"),
        ({"trial": lambda config: None, "metric": "loss", "space": {"x": uniform(0, 1)}}, "use constraint"),
    ],
)
def test_what_can_not_be_limited_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        study(**changes)


@pytest.mark.parametrize("settings", [{"device": "gpu"}, {"threads": 0}, {"batch": 1.5}, {"batch": True}])
def test_what_can_not_be_measured_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match="Latency needs"):
        Latency(**settings)


def test_a_space_that_nothing_is_left_of_is_refused() -> None:
    with pytest.raises(SpaceError):
        replace(study(constraint=lambda config: config["image_size"] == 64), costs=costs(latency_ms=3))
