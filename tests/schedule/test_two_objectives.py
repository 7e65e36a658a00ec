"""Early stopping by two objectives: the front goes on, also what one metric alone would stop."""

from typing import Any

import pytest

from tests.schedule.driving import run_search
from tests.schedule.each import EACH
from tuner.schedule import ASHA, Decision, HyperBand, MedianStopping, Scheduler

PRICES = {"cheap": 9.0, "middle": 5.0, "dear": 1.0}
VALUES = {"cheap": 1.0, "middle": 5.0, "dear": 9.0}


def curves(count: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Trials of three kinds in turn: the dearer, the better; within a kind each is worse than the one before."""
    names = [f"{number:02d}-{kind}" for number in range(count) for kind in PRICES]
    values = {name: [VALUES[name[3:]] - int(name[:2]) / 10] * 9 for name in names}
    return values, {name: PRICES[name[3:]] for name in names}


def epochs_of(scheduler: Scheduler, *, priced: bool, can_pause: bool = True) -> dict[str, int]:
    values, prices = curves(4)
    stopper: Any = scheduler.build(mode="max", max_epochs=9, can_pause=can_pause, trials=len(values))
    begin = stopper.start

    def start(trial: str) -> None:
        begin(trial)
        if priced:
            stopper.price(trial, prices[trial])

    stopper.start = start
    return run_search(stopper, values)


@pytest.mark.parametrize(("scheduler", "beyond"), [(ASHA(), 3), (HyperBand(grace_epochs=1), 1)])
def test_the_best_of_each_price_goes_on_and_of_one_metric_only_the_dear_ones(scheduler: Scheduler, beyond: int) -> None:
    ahead = {trial for trial, epoch in epochs_of(scheduler, priced=True).items() if epoch > beyond}
    assert {"00-cheap", "00-middle", "00-dear"} <= ahead
    alone = {trial for trial, epoch in epochs_of(scheduler, priced=False).items() if epoch > beyond}
    assert "00-cheap" not in alone
    assert "00-dear" in alone


def test_stopping_lets_the_front_go_on_and_stops_what_another_beats_in_both() -> None:
    stopper = ASHA(rule="stop", grace_epochs=1).build(mode="min", max_epochs=9, can_pause=False, trials=None)
    told = []
    for trial, value, price in [("a", 1.0, 1.0), ("b", 5.0, 9.0), ("c", 6.0, 8.0), ("d", 0.5, 0.5), ("e", 7.0, 0.1)]:
        stopper.start(trial)
        stopper.price(trial, price)
        told.append(stopper.report(trial, 1, value))
    assert told[0] is Decision.CONTINUE
    assert told[2] is Decision.STOP  # b is better in both
    assert told[3] is Decision.CONTINUE
    assert told[4] is Decision.STOP


def test_a_price_that_changes_counts_as_it_was_at_the_rung() -> None:
    stopper = ASHA().build(mode="max", max_epochs=9, can_pause=True, trials=3)
    for trial, price in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        stopper.start(trial)
        stopper.price(trial, price)
        assert stopper.report(trial, 3, 1.0) is Decision.PAUSE
    stopper.price("a", 99.0)
    assert stopper.resumable() == "c"


def test_stopping_compares_prices_of_equal_epochs() -> None:
    stopper = ASHA(rule="stop", grace_epochs=3).build(mode="min", max_epochs=27, can_pause=False, trials=None)
    for trial in ("a", "b", "c"):
        stopper.start(trial)
        stopper.price(trial, -3.0)  # such as seconds so far
        stopper.report(trial, 3, 1.0)
    stopper.price("a", -20.0)
    assert stopper.report("a", 8, 0.9) is Decision.CONTINUE
    stopper.start("late")
    stopper.price("late", -4.0)
    assert stopper.report("late", 3, 2.0) is Decision.STOP  # worse in both at the rung


def test_those_that_take_two_objectives_say_so() -> None:
    assert {type(one).__name__ for one in EACH if not one.takes_two_objectives} == {MedianStopping.__name__}
