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
from tuner.loop.first_configurations import MOST, of_portfolio, with_tuners_own
from tuner.search import Learned, portfolio

SAID = "starts {}; --no-portfolio leaves them out"
GOOD = "with 4 configurations that did well on other data (tuner's portfolio)"


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "trial": ImageClassifier("digits", weights=None),
        "space": {"lr": loguniform(1e-4, 1e-1), "batch_size": choice([32, 64])},
        "search": Random(sobol=False),
        "scheduler": NoEarlyStopping(),
        "budget": Budget(trials=20, max_epochs=3),
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


def own(**changes: Any) -> Learned:
    return with_tuners_own(study(**changes), Learned())


def count(before: int, budget: Budget) -> tuple[int, int]:
    """How many of the defaults and of the portfolio follow those of earlier runs."""
    earlier = tuple({"lr": 0.01 + number / 1000} for number in range(before))
    found = with_tuners_own(study(budget=budget), Learned(earlier))
    assert found.starts[:before] == earlier
    return len(found.defaults), len(found.portfolio)


def test_image_classifiers_start_with_the_defaults_and_the_portfolio(tmp_path: Path) -> None:
    found = learned(study(), tmp_path)
    assert found.configs == ()
    assert found.defaults == ({"lr": 0.001, "batch_size": 64},)
    assert len(found.portfolio) == MOST - 1
    assert {tuple(config) for config in found.portfolio} == {("lr", "batch_size")}
    assert found.defaults[0] not in found.portfolio
    assert own(budget=Budget(trials=7, max_epochs=3)).starts == found.starts[:3]  # half of them
    assert own(budget=Budget(trials=2, max_epochs=3)).starts == found.starts[:1]
    assert own(budget=Budget(trials=1, max_epochs=3)).starts == ()
    assert count(2, Budget(trials=7, max_epochs=3)) == (1, 0)
    assert count(3, Budget(trials=7, max_epochs=3)) == (0, 0)
    assert count(1, Budget(trials=None, total_epochs=12, max_epochs=3)) == (1, 0)
    assert count(1, Budget(trials=None, hours=1, max_epochs=3)) == (1, 3)


def test_the_portfolio_knows_what_the_defaults_do_well() -> None:
    space = {"lr": choice([0.001, 0.0001, 5e-5, 2e-5, 1e-5, 5e-6])}
    assert {"lr": 0.001} in of_portfolio(study(space=space))
    assert {"lr": 0.001} not in own(space=space).portfolio


def test_the_defaults_that_an_earlier_run_found_best_take_no_second_place() -> None:
    found = with_tuners_own(study(), Learned(({"lr": 0.001, "batch_size": 64},), ("a/1",)))
    assert found.defaults == ()
    assert len(found.portfolio) == MOST


@pytest.mark.parametrize(
    ("space", "values"),
    [
        ({"lr": loguniform(0.01, 0.1)}, {"lr": 0.01}),
        ({"batch_size": choice([16, 32])}, {"batch_size": 32}),
        ({"schedule": choice(["constant", "step"]), "lr": 0.1}, {"schedule": "constant", "lr": 0.1}),
        (
            {"schedule": choice(["constant", "cosine"]), "dropout": choice([0.0, 0.5])},
            {"schedule": "cosine", "dropout": 0.0},
        ),
        (
            {"optimizer": choice(["adam", "sgd"]), "momentum": uniform(0.8, 0.99).when(optimizer="sgd")},
            {"optimizer": "adam"},
        ),
        ({"lr": loguniform(1e-4, 1e-1), "flip": 0.5}, {"lr": 0.001, "flip": 0.5}),
    ],
)
def test_the_defaults_are_moved_into_the_space(space: dict[str, Any], values: dict[str, Any]) -> None:
    (config,) = own(space=space).defaults
    assert config == pytest.approx(values)


def test_what_has_no_default_is_drawn() -> None:
    space = {"lr": loguniform(1e-4, 1e-1), "image_size": choice([8, 16, 24, 32])}
    drawn = {own(space=space, seed=seed).defaults[0]["image_size"] for seed in range(20)}
    assert len(drawn) > 1
    assert own(space=space) == own(space=space)


def test_the_defaults_come_for_any_metric_and_obey_the_constraint() -> None:
    assert own(metric="val_loss").starts == ({"lr": 0.001, "batch_size": 64},)
    assert own(constraint=lambda config: config["lr"] > 0.002).defaults == ()
    assert len(own(constraint=lambda config: config["lr"] > 0.002).portfolio) == MOST


def test_pretrained_weights_ask_other_studies(tmp_path: Path) -> None:
    random = of_portfolio(study())
    weights = of_portfolio(study(trial=ImageClassifier("digits", weights=str(tmp_path / "w.pt"))))
    assert weights
    assert weights != random


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "val_f1", "trial": ImageClassifier(lambda: None, weights=None, task="several")},
        {"metric": "val_loss"},
        {"search": Grid(), "space": {"lr": grid_search([0.1, 0.01])}, "budget": Budget(trials=None, max_epochs=3)},
        {"space": {"image_size": choice([8, 16])}},
        {"budget": Budget(trials=1)},
    ],
)
def test_others_get_none_of_the_portfolio(changes: dict[str, Any]) -> None:
    assert own(**changes).portfolio == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"warm_start": None},
        {"warm_start": History(portfolio=False)},
        {"search": Grid(), "space": {"lr": grid_search([0.1, 0.01])}, "budget": Budget(trials=None, max_epochs=3)},
        {"space": {"image_size": choice([8, 16])}},
    ],
)
def test_some_start_with_neither(changes: dict[str, Any]) -> None:
    assert own(**changes) == Learned()


EITHER = {"lr": loguniform(1e-4, 1e-1), "finetune": choice(["head", "all"])}


@pytest.mark.parametrize(
    "changes",
    [
        {"trial": ImageClassifier("digits", model=lambda config: None)},
        {"trial": ImageClassifier("digits", weights="w.pt"), "space": EITHER},
        {"trial": ImageClassifier("digits", weights="w.pt")},
    ],
)
def test_whatever_is_trained_and_however_much_of_it_it_starts_with_both(changes: dict[str, Any]) -> None:
    found = own(**changes)
    assert found.defaults[0]["lr"] == 0.001
    assert found.defaults[0].get("finetune", "all") == "all"
    assert len(found.starts) == MOST


def test_heads_start_with_the_portfolio_alone() -> None:
    found = own(
        trial=ImageClassifier("digits", weights="w.pt"), space={"lr": loguniform(1e-4, 1e-1), "finetune": "head"}
    )
    assert found.defaults == ()
    assert len(found.portfolio) == MOST


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
    found = with_tuners_own(function(**{**settings, **changes}), Learned())
    assert found.defaults == ()  # of what a function does without being told nothing is known
    return found.portfolio


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
    plain, off = study(warm_start=History(top=3)), study(warm_start=None)
    without = study(warm_start=History(portfolio=False))
    assert plain.with_options(portfolio=False).warm_start == History(top=3, portfolio=False)
    assert without.with_options(portfolio=True).warm_start == History()
    assert plain.with_options(history=False).warm_start == History(studies=(), top=3)
    assert plain.with_options(history=False, portfolio=False).warm_start is None
    assert without.with_options(history=False).warm_start is None
    assert off.with_options(portfolio=True).warm_start == History(studies=())
    assert off.with_options(portfolio=False).warm_start is None
    assert learned(plain.with_options(portfolio=False), tmp_path) == Learned()
    assert len(learned(plain.with_options(history=False), tmp_path).starts) == MOST


def test_it_comes_after_starting_points_and_earlier_runs_and_is_told(tmp_path: Path) -> None:
    declared = study(start_from=[{"lr": 0.05, "batch_size": 64}])
    loop = build(
        declared,
        tmp_path,
        learned=Learned(({"lr": 0.02},), ("a/1",), defaults=({"lr": 0.001},), portfolio=({"lr": 0.01},)),
    )
    drive(loop, curve)
    assert [trial.config["lr"] for trial in loop.record.trials.values()][:4] == [0.05, 0.02, 0.001, 0.01]
    assert loop.record.notices == [
        "starts with 1 configuration learned from earlier runs (a/1); --no-history leaves them out",
        SAID.format("with the trainer's defaults and " + GOOD.replace("4 configurations", "1 configuration")),
    ]
    codes = [event["code"] for event in events_of(tmp_path) if event["event"] == "notice"]
    assert codes == ["learned", "portfolio"]


def test_a_resumed_search_keeps_its_portfolio_when_the_file_changes(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = learned(study(), tmp_path)
    whole = build(study(), tmp_path / "whole", learned=found)
    drive(whole, curve)
    assert whole.record.notices == [SAID.format(f"with the trainer's defaults and {GOOD}")]
    drive(build(study(), tmp_path / "cut", learned=found), curve, reports=4)
    request.getfixturevalue("other_file")
    changed = learned(study(), tmp_path)
    assert changed.portfolio != found.portfolio
    again = build(study(), tmp_path / "cut", history=events_of(tmp_path / "cut"), learned=changed)
    drive(again, curve)
    assert [t.config for t in again.record.trials.values()] == [t.config for t in whole.record.trials.values()]
    assert again.record.notices == [SAID.format(f"with the trainer's defaults and {GOOD}")]
