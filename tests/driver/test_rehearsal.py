"""A search played before it starts: the early stopping and the limits are the real ones."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tuner import ASHA, Budget, Folds, ImageClassifier, NoEarlyStopping, Study, choice, loguniform
from tuner.driver.rehearsal import REPORT_SECONDS, rehearse
from tuner.driver.search_cost import NARROWEST, Speeds, search_cost
from tuner.trial.speed import Speed, kind_of


def train(config: dict[str, Any]) -> None:
    raise NotImplementedError


def study(**given: Any) -> Study:
    space = {"lr": loguniform(1e-4, 1e-1), "kind": choice(["quick", "slow"])}
    return Study("played", trial=train, space=space, metric="value", **given)


def speed(*epochs: float, once: float = 0.0, start: float = 0.0, **given: Any) -> Speed:
    fields = {"once_for": "model 224", "score_seconds": 3.0, "look_seconds": 0.0, "cache_bytes": 5, "memory_bytes": 7}
    rest = {"images": (80, 10, 10), "images_per_second": 9.0, "features_per_second": 9.0, "busy": 1.0}
    return Speed(start_seconds=start, once_seconds=once, epoch_seconds=epochs, **{**fields, **rest, **given})


def seconds(played: float) -> float:
    return pytest.approx(played, rel=1e-6)


def test_every_trial_to_its_end_takes_its_epochs() -> None:
    declared = study(budget=Budget(trials=4, max_epochs=3), scheduler=NoEarlyStopping())
    found = rehearse(declared, 2, lambda config: speed(1.0, 2.0, start=0.5), seed=0)
    assert (found.epochs, found.trials, found.whole) == (12, 4, True)
    assert found.seconds == seconds(2 * (0.5 + 1 + 2 + 2 + 3 * REPORT_SECONDS))  # of the third as of the second


def test_early_stopping_and_a_number_of_epochs_are_obeyed() -> None:
    declared = study(budget=Budget(total_epochs=50, max_epochs=9), scheduler=ASHA(grace_epochs=1))
    found = rehearse(declared, 2, lambda config: speed(1.0), seed=0)
    assert found.epochs == 50
    assert 20 < found.trials < 45  # a third of them go on from the first epoch
    assert found.seconds == seconds(25 * (1 + REPORT_SECONDS))


def test_the_clock_ends_a_search_after_the_epochs_that_run() -> None:
    declared = study(budget=Budget(trials=None, max_epochs=9, minutes=1))
    found = rehearse(declared, 2, lambda config: speed(7.0), seed=0)
    assert 60 <= found.seconds <= 70
    assert found.epochs == pytest.approx(18, abs=1)


def test_features_are_computed_once_and_waited_for() -> None:
    declared = study(budget=Budget(trials=4, max_epochs=1), scheduler=NoEarlyStopping())
    found = rehearse(declared, 4, lambda config: speed(1.0, once=30.0), seed=0)
    assert found.seconds == seconds(30 + 1 + REPORT_SECONDS)


def test_views_are_computed_once_beside_the_features_of_all() -> None:
    declared = study(scheduler=NoEarlyStopping(), budget=Budget(trials=20, max_epochs=1))
    plain, other = speed(1.0, once=30.0), speed(1.0, once=30.0, views_seconds=60.0, views_for="with views")
    found = rehearse(declared, 1, lambda config: other if config["kind"] == "slow" else plain, seed=0)
    assert found.seconds == seconds(20 * (1 + REPORT_SECONDS) + 30 + 60)


@pytest.mark.parametrize(
    ("limits", "validation", "total", "trials", "lasts"),
    [
        ({"trials": 4}, None, 15, 5, 2 * (0.5 + 3) + 0.5 + 5 / 4 * 3),  # with a fifth more images
        ({"trials": 4}, Folds(3), 15, 5, 2 * (0.5 + 3) + 0.5 + 3 / 6 * 3),  # one network, not three on two thirds each
        ({"total_epochs": 12}, None, 12, 5, 2 * 0.5 + 5 + 0.5 + 5 / 4 * 3),  # the search: 5 epochs and 4
        ({"trials": None, "minutes": 0.2}, None, 3 + 13, 7, 12.0),  # the search: 7.7 s, of which 6.5 train
    ],
)
def test_a_refit_is_the_last_trial_and_limits_hold_with_it(
    limits: dict[str, Any], validation: Any, total: int, trials: int, lasts: float
) -> None:
    trial = ImageClassifier("digits", "resnet18", None, validation=validation)
    declared = Study(
        "played",
        trial=trial,
        space={"lr": loguniform(1e-4, 1e-1)},
        budget=Budget(max_epochs=3, **limits),
        scheduler=NoEarlyStopping(),
        refit="train+validation",
    )
    found = rehearse(declared, 2, lambda config: speed(1.0, start=0.5), seed=0)
    assert (found.epochs, found.trials) == (total, trials)
    assert found.seconds == pytest.approx(lasts, abs=7 * REPORT_SECONDS)


def test_a_search_without_an_end_says_so_and_a_long_one_is_reckoned() -> None:
    endless = rehearse(study(budget=Budget(trials=None, max_epochs=9)), 2, lambda config: speed(1.0), seed=0)
    assert (endless.whole, endless.seconds) == (False, math.inf)
    declared = study(budget=Budget(total_epochs=100_000, max_epochs=9))
    found = rehearse(declared, 2, lambda config: speed(1.0), seed=0)
    assert (found.epochs, found.seconds) == (100_000, pytest.approx(50_000 * (1 + REPORT_SECONDS), rel=0.01))


def speeds(**given: Any) -> Speeds:
    by_kind = {"quick": speed(1.0, **given), "slow net": speed(4.0, **given)}
    return Speeds(by_kind, lambda config: config["kind"], ready_seconds=2.0)


def test_the_cost_is_an_interval_around_what_was_played() -> None:
    declared = study(budget=Budget(total_epochs=40, max_epochs=4))
    cost = search_cost(declared, 2, speeds(), ["a note"])
    assert cost is not None
    low, middle, high = cost.seconds
    assert low * np.exp(NARROWEST) <= middle * 1.001
    assert middle * np.exp(NARROWEST) <= high * 1.001
    assert 20 < middle < 100  # 40 epochs of 1 or 4 s by two workers, and 11.4 s around them
    assert cost.epochs == (40, 40)
    assert cost.record()["minutes"]["middle"] == round(middle / 60, 2)
    assert (cost.notes, cost.cache_bytes, cost.memory_bytes) == (("a note",), 5, 7)


def test_a_busy_machine_is_told_and_no_end_has_no_cost() -> None:
    cost = search_cost(study(budget=Budget(total_epochs=40, max_epochs=4)), 2, speeds(busy=0.25))
    assert cost is not None
    assert cost.notes == (
        "other programs used this machine while it was measured; alone it is about 4.0 times as fast, so run this again when they have ended",
    )
    assert search_cost(study(budget=Budget(trials=None, max_epochs=4)), 2, speeds()) is None


def test_before_an_average_networks_of_each_model_and_image_size_answer() -> None:
    by_kind = {f"{size}": speed(1.0, once_for=f"model {size}", score_seconds=size) for size in (64, 96)}
    measured = Speeds(
        {**by_kind, "96 flip": by_kind["96"]}, lambda config: str(config["image_size"]), ready_seconds=2.0
    )
    classifier = ImageClassifier("digits", "resnet18", None)
    space = {"image_size": choice([64, 96]), "lr": loguniform(1e-4, 1e-1)}
    declared = Study("played", trial=classifier, space=space, budget=Budget(trials=4, max_epochs=4))
    alone = search_cost(declared, 2, measured)
    averaged = search_cost(replace(declared, combine="auto"), 2, measured)
    assert alone is not None
    assert averaged is not None
    assert averaged.seconds[1] - alone.seconds[1] == pytest.approx(64, abs=1)
    distilled = search_cost(replace(declared, combine="distilled"), 2, measured)
    assert distilled is not None  # 12 epochs, in which others answer, too
    assert distilled.seconds[1] - averaged.seconds[1] == pytest.approx(2 * 12 * 1.0, abs=1)


def test_repeats_that_come_on_top_of_the_trials_are_told() -> None:
    cost = search_cost(study(budget=Budget(trials=4, max_epochs=4), repeats=3), 2, speeds())
    assert cost is not None
    assert cost.notes == ("repeats=3: leaders under other seeds come on top of 4 trials",)
    within = search_cost(study(budget=Budget(total_epochs=40, max_epochs=4), repeats=3), 2, speeds())
    assert within is not None
    assert within.notes == ()


def test_a_kind_that_was_not_measured_counts_like_the_one_most_like_it() -> None:
    found = speeds()
    assert found.of({"kind": "slow"}).epoch_seconds == (4.0,)
    assert found.of({"kind": "quick thing"}).epoch_seconds == (1.0,)


def test_kinds_are_told_by_what_changes_the_time_of_an_image() -> None:
    chosen = {"model": "resnet18", "finetune": "head", "image_size": 64, "lr": 0.1, "flip": 0.0, "mixup": 0.2}
    assert kind_of(chosen) == "model=resnet18 finetune=head image_size=64 mixup"
    recipe = {**chosen, "auto_augment": "rand", "cutmix": 0.0, "test_time_flip": True}
    assert kind_of(recipe) == "model=resnet18 finetune=head image_size=64 mixup auto_augment=rand test_time_flip"
    assert kind_of({**chosen, "auto_augment": "none", "test_time_flip": False}) == kind_of(chosen)
    assert kind_of({**chosen, "lr": 0.2, "batch_size": 8}) == kind_of(chosen)
