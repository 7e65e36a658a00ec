import math
from typing import Any

import pytest

from tests.schedule.each import COMPARING, EACH
from tuner.errors import StudyError
from tuner.schedule import ASHA, Decision, HyperBand, MedianStopping, NoEarlyStopping, Scheduler


def build(scheduler: Scheduler, max_epochs: int = 9, **changes: Any) -> Any:
    return scheduler.build(**{"mode": "max", "max_epochs": max_epochs, "can_pause": True, "trials": None, **changes})


@pytest.mark.parametrize(
    ("scheduler", "max_epochs", "rungs"),
    [
        (ASHA(), 9, [3]),
        (ASHA(), 10, [3, 9]),
        (ASHA(), 82, [3, 9, 27, 81]),
        (ASHA(), 3, [2]),
        (ASHA(), 2, [1]),
        (ASHA(), 1, []),
        (ASHA(grace_epochs=1, reduction_factor=4), 64, [1, 4, 16]),
        (ASHA(grace_epochs=1, reduction_factor=2.5), 20, [1, 3, 7, 16]),
        (HyperBand(), 28, [3, 9, 27]),
        (HyperBand(grace_epochs=1), 9, [1, 3]),
        (HyperBand(), 1, []),
        (MedianStopping(), 6, [3, 4, 5]),
        (MedianStopping(grace_epochs=1), 3, [1, 2]),
        (NoEarlyStopping(), 9, []),
    ],
)
def test_rungs_lie_below_the_last_epoch(scheduler: Scheduler, max_epochs: int, rungs: list[int]) -> None:
    scheduler.check(max_epochs)
    assert scheduler.rungs(max_epochs) == rungs


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (
            ASHA(grace_epochs=9),
            "ASHA needs a grace period below the trials' length, got grace_epochs=9 with max_epochs=9, which leaves "
            "nothing to stop; use at most 8",
        ),
        (HyperBand(grace_epochs=12), "HyperBand needs a grace period .* use at most 8"),
        (MedianStopping(grace_epochs=9), "MedianStopping needs a grace period .* use at most 8"),
        (ASHA(grace_epochs=0), "ASHA.grace_epochs needs a whole number of at least 1, got 0; use 3"),
        (ASHA(grace_epochs=True), "ASHA.grace_epochs needs a whole number of at least 1, got True; use 3"),
        (ASHA(grace_epochs=2.5), "ASHA.grace_epochs needs a whole number of at least 1, got 2.5; use 3"),  # type: ignore[arg-type]
        (ASHA(reduction_factor=1.5), "ASHA.reduction_factor needs a number of at least 2, got 1.5; use 3"),
        (HyperBand(reduction_factor=math.nan), "HyperBand.reduction_factor needs a number of at least 2, got nan"),
        (ASHA(rule="halve"), "ASHA.rule needs 'promote' or 'stop', got 'halve'; use one of them"),  # type: ignore[arg-type]
        (MedianStopping(min_trials=0), "MedianStopping.min_trials needs a whole number of at least 1, got 0; use 3"),
    ],
)
def test_settings_that_cannot_work_are_refused(scheduler: Scheduler, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        scheduler.check(9)


def test_a_grace_period_in_a_study_of_one_epoch_names_the_scheduler_to_use() -> None:
    with pytest.raises(StudyError, match=r"use NoEarlyStopping\(\)"):
        ASHA(grace_epochs=1).check(1)


@pytest.mark.parametrize("scheduler", EACH, ids=repr)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(scheduler: Scheduler, value: float) -> None:
    stopper = build(scheduler)
    stopper.start("a")
    with pytest.raises(ValueError, match=r"needs finite values, got -?(nan|inf) from trial 'a' at epoch 1"):
        stopper.report("a", 1, value)


@pytest.mark.parametrize("scheduler", COMPARING, ids=repr)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_single_trial_is_never_stopped(scheduler: Scheduler, mode: str) -> None:
    stopper = build(scheduler, mode=mode, can_pause=False)
    stopper.start("a")
    assert {stopper.report("a", epoch, -epoch) for epoch in range(1, 10)} == {Decision.CONTINUE}


@pytest.mark.parametrize("scheduler", EACH, ids=repr)
def test_nothing_pauses_where_trials_cannot(scheduler: Scheduler) -> None:
    stopper = build(scheduler, can_pause=False)
    decisions = set()
    for trial in range(30):
        stopper.start(str(trial))
        for epoch in range(1, 10):
            decision = stopper.report(str(trial), epoch, (trial * 7 % 30) / epoch)
            decisions.add(decision)
            if decision is Decision.STOP:
                break
        stopper.end(str(trial))
    assert Decision.PAUSE not in decisions
    assert (stopper.resumable(), stopper.eliminated()) == (None, [])


def test_no_early_stopping_lets_the_worst_go_on() -> None:
    stopper = build(NoEarlyStopping())
    for trial, value in enumerate([5.0, 4.0, 3.0, -100.0]):
        stopper.start(str(trial))
        assert stopper.report(str(trial), 3, value) is Decision.CONTINUE


@pytest.mark.parametrize("scheduler", EACH, ids=repr)
def test_two_builds_share_no_state(scheduler: Scheduler) -> None:
    first, second = build(scheduler), build(scheduler)
    for trial in range(9):
        first.start(str(trial))
        first.report(str(trial), 3, float(trial))
    second.start("worst")
    assert second.report("worst", 3, -1.0) is not Decision.STOP
