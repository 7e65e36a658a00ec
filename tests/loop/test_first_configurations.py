"""What tuner's own studies suggest to a study of image classifiers, and when nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of
from tests.loop.simulation import study as function
from tuner import (
    Budget,
    Grid,
    History,
    ImageClassifier,
    NoEarlyStopping,
    Random,
    Study,
    choice,
    grid_search,
    loguniform,
    uniform,
)
from tuner.loop.earlier_runs import learned
from tuner.loop.first_configurations import MOST, of_portfolio
from tuner.search import Learned, portfolio

SAID = "starts with {} that did well on other data (tuner's portfolio); --no-portfolio leaves them out"


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "trial": ImageClassifier("digits", weights=None),
        "space": {"lr": loguniform(1e-4, 1e-1), "batch_size": choice([32, 64])},
        "search": Random(sobol=False),
        "scheduler": NoEarlyStopping(),
        "budget": Budget(trials=20, max_epochs=3),
        "warm_start": History(portfolio=True),
    }
    return Study("photos", **{**settings, **changes})


def curve(config: dict[str, Any], epoch: int) -> float:
    return 1 - config["lr"] - 1 / (9 * epoch)


@pytest.fixture
def other_file() -> Iterator[None]:
    """Another version of tuner, whose portfolio has the opposite opinion."""
    known = portfolio.shipped()
    opposite = replace(known, regrets=1.5 - known.regrets)
    portfolio.shipped.cache_clear()
    original = portfolio.shipped
    portfolio.shipped = lambda: opposite  # type: ignore[assignment]
    yield
    portfolio.shipped = original


def test_image_classifiers_start_with_the_portfolio(tmp_path: Path) -> None:
    found = learned(study(), tmp_path)
    assert found.configs == ()
    assert len(found.portfolio) == MOST
    assert {tuple(config) for config in found.portfolio} == {("lr", "batch_size")}
    assert of_portfolio(study(budget=Budget(trials=7, max_epochs=3)), less=0) == found.portfolio[:3]  # half of them
    assert of_portfolio(study(budget=Budget(trials=7, max_epochs=3)), less=2) == found.portfolio[:1]
    assert of_portfolio(study(budget=Budget(trials=None, total_epochs=12, max_epochs=3)), less=0) == found.portfolio[:2]
    assert of_portfolio(study(budget=Budget(trials=7, max_epochs=3)), less=3) == ()


def test_pretrained_weights_ask_other_studies(tmp_path: Path) -> None:
    random = of_portfolio(study(), less=0)
    weights = of_portfolio(study(trial=ImageClassifier("digits", weights=str(tmp_path / "w.pt"))), less=0)
    assert weights
    assert weights != random


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "val_loss"},
        {"metric": "val_f1", "trial": ImageClassifier(lambda: None, weights=None, task="several")},
        {"warm_start": None},
        {"warm_start": History(portfolio=False)},
        {"trial": ImageClassifier("digits", weights="w.pt"), "warm_start": History()},
        {"search": Grid(), "space": {"lr": grid_search([0.1, 0.01])}, "budget": Budget(trials=None, max_epochs=3)},
        {"space": {"image_size": choice([8, 16])}},
        {"budget": Budget(trials=1)},
    ],
)
def test_others_get_none(changes: dict[str, Any]) -> None:
    assert of_portfolio(study(**changes), less=0) == ()


HEAD = {"lr": loguniform(1e-4, 1e-1), "finetune": "head"}
EITHER = {"lr": loguniform(1e-4, 1e-1), "finetune": choice(["head", "all"])}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"trial": ImageClassifier("digits", weights=None)}, MOST),
        ({"trial": ImageClassifier("digits", model=lambda config: None)}, MOST),
        ({"trial": ImageClassifier("digits", weights="w.pt"), "space": HEAD}, MOST),
        ({"trial": ImageClassifier("digits", weights="w.pt"), "space": EITHER}, 0),
        ({"trial": ImageClassifier("digits", weights="w.pt")}, 0),
    ],
)
def test_unless_told_otherwise_all_but_whole_pretrained_models_get_it(changes: dict[str, Any], count: int) -> None:
    assert len(of_portfolio(study(**changes, warm_start=History()), less=0)) == count
    assert len(of_portfolio(study(**changes), less=0)) == MOST  # where it is asked for


USUAL: dict[str, Any] = {
    "learning_rate": loguniform(1e-4, 1e-1),
    "batch_size": choice([16, 256]),
    "layers": choice([1, 2]),
}


def of_function(**changes: Any) -> tuple[dict[str, Any], ...]:
    settings = {
        "space": USUAL,
        "metric": "test_acc",
        "mode": "max",
        "budget": Budget(trials=20),
        "warm_start": History(),
    }
    return of_portfolio(function(**{**settings, **changes}), less=0)


def test_functions_with_usual_hyperparameters_start_with_the_portfolio_by_their_own_names() -> None:
    found = of_function()
    assert len(found) == MOST
    assert {tuple(config) for config in found} == {("learning_rate", "batch_size", "layers")}
    assert sum(config["batch_size"] == 16 for config in found) >= 3  # small ones were better
    with_momentum = of_function(space={**USUAL, "momentum": uniform(0.1, 0.99)})
    rates = [[config["learning_rate"] for config in each] for each in (found, with_momentum)]
    assert max(rates[0]) < max(rates[1])  # which makes it SGD, with higher rates


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "loss"},
        {"metric": "accumulated_reward"},
        {"mode": "min", "metric": "accuracy"},
        {"space": {**USUAL, "learning_rate": uniform(-5, -1)}},
        {"space": {"x": uniform(0, 1), "y": uniform(0, 1)}},
        {"warm_start": History(portfolio=False)},
        {"warm_start": None},
    ],
)
def test_other_functions_get_none(changes: dict[str, Any]) -> None:
    assert of_function(**changes) == ()


def test_options_take_it_and_earlier_runs_on_and_off(tmp_path: Path) -> None:
    declared, plain, off = study(), study(warm_start=History(top=3)), study(warm_start=None)
    assert declared.with_options(portfolio=False).warm_start == History(portfolio=False)
    assert plain.with_options(portfolio=True).warm_start == History(top=3, portfolio=True)
    assert declared.with_options(history=False).warm_start == History(studies=(), portfolio=True)
    assert plain.with_options(history=False).warm_start == History(studies=(), top=3)
    assert plain.with_options(history=False, portfolio=False).warm_start is None
    assert declared.with_options(history=False, portfolio=False).warm_start is None
    assert off.with_options(portfolio=True).warm_start == History(studies=(), portfolio=True)
    assert off.with_options(portfolio=False).warm_start is None
    assert learned(plain.with_options(portfolio=False), tmp_path) == Learned()
    assert len(learned(declared.with_options(history=False), tmp_path).portfolio) == MOST


def test_it_comes_after_starting_points_and_earlier_runs_and_is_told(tmp_path: Path) -> None:
    declared = study(start_from=[{"lr": 0.05, "batch_size": 64}])
    loop = build(
        declared, tmp_path, learned=Learned(({"lr": 0.02, "batch_size": 32},), ("a/1",), portfolio=({"lr": 0.01},))
    )
    drive(loop, curve)
    assert [trial.config["lr"] for trial in loop.record.trials.values()][:3] == [0.05, 0.02, 0.01]
    assert loop.record.notices == [
        "starts with 1 configuration learned from earlier runs (a/1); --no-history leaves them out",
        SAID.format("1 configuration"),
    ]
    codes = [event["code"] for event in events_of(tmp_path) if event["event"] == "notice"]
    assert codes == ["learned", "portfolio"]


def test_a_resumed_search_keeps_its_portfolio_when_the_file_changes(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = learned(study(), tmp_path)
    whole = build(study(), tmp_path / "whole", learned=found)
    drive(whole, curve)
    assert whole.record.notices == [SAID.format("5 configurations")]
    drive(build(study(), tmp_path / "cut", learned=found), curve, reports=4)
    request.getfixturevalue("other_file")
    changed = learned(study(), tmp_path)
    assert changed.portfolio != found.portfolio
    again = build(study(), tmp_path / "cut", history=events_of(tmp_path / "cut"), learned=changed)
    drive(again, curve)
    assert [t.config for t in again.record.trials.values()] == [t.config for t in whole.record.trials.values()]
    assert again.record.notices == [SAID.format("5 configurations")]
