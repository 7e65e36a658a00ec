"""How many epochs the minutes pay for, at speeds that are made up."""

from dataclasses import replace

import pytest

from tests.first_study.test_planning import speed
from tuner.driver.search_cost import Speeds, search_cost
from tuner.first_study.drafting import MOST_TRIALS, SHARE, TRIALS_OF_EACH, _budget, _compares, _fitted, _needed_minutes
from tuner.first_study.planning import Wishes, least_epochs
from tuner.space import choice, loguniform
from tuner.study.budget import Budget
from tuner.study.declaration import Study
from tuner.trial import ImageClassifier

WORKERS = 2
STUDY = Study(
    "photos",
    trial=ImageClassifier("digits", weights=None),
    space={"lr": loguniform(1e-4, 1e-2)},
    budget=Budget(trials=None, total_epochs=100, max_epochs=9),
)
SPEEDS = Speeds({"any": speed(20.0)}, lambda config: "any", ready_seconds=3.0)  # an epoch takes a tenth of a second


def foreseen_minutes(total: int) -> float:
    cost = search_cost(STUDY.with_options(total_epochs=total), WORKERS, SPEEDS)
    assert cost is not None
    return cost.minutes[1]


@pytest.mark.parametrize("minutes", [0.8, 1.2])
def test_as_many_epochs_as_the_minutes_pay_for(minutes: float) -> None:
    total = _fitted(STUDY, WORKERS, SPEEDS, Wishes(minutes))
    assert total > least_epochs(9)
    assert foreseen_minutes(total) <= SHARE * minutes < foreseen_minutes(total + 9)
    written = _budget(STUDY, WORKERS, SPEEDS, Wishes(minutes), total, "change nothing", short=False)
    assert f"total_epochs={total}" in written.value
    assert f"{total} epochs of all trials are expected to fit 80% of the minutes" in written.reason
    assert "more minutes" not in written.reason


def test_never_more_trials_than_are_worth_it() -> None:
    total = _fitted(STUDY, WORKERS, SPEEDS, Wishes(10_000))
    cost = search_cost(STUDY.with_options(total_epochs=total), WORKERS, SPEEDS)
    assert cost is not None
    assert cost.trials[1] in (MOST_TRIALS - 1, MOST_TRIALS)
    written = _budget(STUDY, WORKERS, SPEEDS, Wishes(10_000), total, "change nothing", short=False)
    assert f"{total} epochs of all trials are as many as are useful" in written.reason
    assert "more minutes would change nothing; at most 9 epochs" in written.reason


def test_the_fewest_epochs_where_the_minutes_are_too_few() -> None:
    assert _fitted(STUDY, WORKERS, SPEEDS, Wishes(0.01)) == least_epochs(9)
    assert _needed_minutes(STUDY, WORKERS, SPEEDS) == pytest.approx(foreseen_minutes(least_epochs(9)) / SHARE)


def test_models_are_compared_by_several_trials_of_each() -> None:
    study = Study(
        "photos",
        trial=ImageClassifier("digits", weights=None),
        space={"model": choice(["mobilenet_v2", "resnet18"]), "lr": loguniform(1e-4, 1e-2)},
        budget=Budget(trials=None, total_epochs=100, max_epochs=1),
    )
    by_kind = {name: replace(speed(20.0), once_for=name) for name in ("mobilenet_v2", "resnet18", "not of the study")}
    speeds = Speeds(by_kind, lambda config: str(config["model"]), ready_seconds=3.0)
    needed = 2 * TRIALS_OF_EACH
    assert [_compares(study, WORKERS, speeds, total) for total in (needed - 1, needed)] == [False, True]
    assert _compares(STUDY, WORKERS, SPEEDS, least_epochs(9))  # one model at one size
