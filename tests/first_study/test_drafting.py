"""How many epochs the minutes pay for, at speeds that are made up, and which plan they pay for."""

from dataclasses import replace

import pytest

from tests.first_study.test_planning import speed
from tuner.driver.search_cost import Speeds, search_cost
from tuner.first_study.drafting import (
    MOST_TRIALS,
    SHARE,
    TRIALS_OF_EACH,
    _affordable,
    _budget,
    _compares,
    _Fitted,
    _most_epochs,
    _needed_minutes,
)
from tuner.first_study.plan import Plan
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


def fitted(total: int, *, study: Study = STUDY, speeds: Speeds = SPEEDS, needed: float = 0.1) -> _Fitted:
    return _Fitted(Plan("photos", "", (), (), ()), study, WORKERS, speeds, (), total, needed)


@pytest.mark.parametrize("minutes", [0.8, 1.2])
def test_as_many_epochs_as_the_minutes_pay_for(minutes: float) -> None:
    total = _most_epochs(STUDY, WORKERS, SPEEDS, Wishes(minutes))
    assert total > least_epochs(9)
    assert foreseen_minutes(total) <= SHARE * minutes < foreseen_minutes(total + 9)
    written = _budget(fitted(total), Wishes(minutes), "change nothing", short=False)
    assert f"total_epochs={total}" in written.value
    assert f"{total} epochs of all trials are expected to fit 80% of the minutes" in written.reason
    assert "more minutes" not in written.reason


def test_never_more_trials_than_are_worth_it() -> None:
    total = _most_epochs(STUDY, WORKERS, SPEEDS, Wishes(10_000))
    cost = search_cost(STUDY.with_options(total_epochs=total), WORKERS, SPEEDS)
    assert cost is not None
    assert cost.trials[1] in (MOST_TRIALS - 1, MOST_TRIALS)
    written = _budget(fitted(total), Wishes(10_000), "change nothing", short=False)
    assert f"{total} epochs of all trials are as many as are useful" in written.reason
    assert "more minutes would change nothing; at most 9 epochs" in written.reason


def test_the_fewest_epochs_where_the_minutes_are_too_few() -> None:
    assert _most_epochs(STUDY, WORKERS, SPEEDS, Wishes(0.01)) == least_epochs(9)
    assert _needed_minutes(STUDY, WORKERS, SPEEDS) == pytest.approx(foreseen_minutes(least_epochs(9)) / SHARE)


def two_models(total: int, needed: float = 0.1) -> _Fitted:
    study = Study(
        "photos",
        trial=ImageClassifier("digits", weights=None),
        space={"model": choice(["mobilenet_v2", "resnet18"]), "lr": loguniform(1e-4, 1e-2)},
        budget=Budget(trials=None, total_epochs=100, max_epochs=1),
    )
    by_kind = {name: replace(speed(20.0), once_for=name) for name in ("mobilenet_v2", "resnet18", "not of the study")}
    speeds = Speeds(by_kind, lambda config: str(config["model"]), ready_seconds=3.0)
    return fitted(total, study=study, speeds=speeds, needed=needed)


def test_models_are_compared_by_several_trials_of_each() -> None:
    needed = 2 * TRIALS_OF_EACH
    assert [_compares(two_models(total)) for total in (needed - 1, needed)] == [False, True]
    assert _compares(fitted(least_epochs(9)))  # one model at one size


@pytest.mark.parametrize(
    ("plans", "chosen"),
    [
        ([two_models(20, 4.0), fitted(20, needed=2.0)], 0),
        ([two_models(4, 4.0), fitted(20, needed=2.0)], 1),  # it fits, but has two trials of each model
        ([two_models(20, 6.0), fitted(20, needed=2.0)], 1),
        ([two_models(4, 9.0), fitted(20, needed=8.0), fitted(20, needed=7.5)], 1),  # none fits, and less saves little
        ([two_models(4, 7.6), fitted(20, needed=7.5)], 0),
    ],
)
def test_the_first_plan_that_the_minutes_pay_for(plans: list[_Fitted], chosen: int) -> None:
    asked = iter(plans)
    assert _affordable(asked, 5.0) is plans[chosen]
    assert len(list(asked)) == (len(plans) - 1 - chosen if plans[chosen].needed <= 5 else 0)  # others aren't measured
