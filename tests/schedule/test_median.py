import random
from typing import Any, Literal

import pytest

from tuner.schedule import Decision, EarlyStopper, MedianStopping

CONTINUE, STOP = Decision.CONTINUE, Decision.STOP


def build(mode: Literal["min", "max"] = "max", **settings: int) -> EarlyStopper:
    return MedianStopping(**settings).build(mode=mode, max_epochs=20, can_pause=True, trials=None)


def tell(stopper: EarlyStopper, curves: dict[str, list[float]]) -> None:
    for trial, curve in curves.items():
        for epoch, value in enumerate(curve, 1):
            stopper.report(trial, epoch, value)


OTHERS = {"a": [1.0, 3.0], "b": [2.0, 4.0], "c": [5.0, 7.0]}  # running means at epoch 2: 2, 3, 6


@pytest.mark.parametrize(("best", "decision"), [(2.99, STOP), (3.0, CONTINUE), (3.01, CONTINUE)])
def test_a_best_value_below_the_median_of_running_means_stops(best: float, decision: Decision) -> None:
    stopper = build(grace_epochs=1)
    tell(stopper, OTHERS)
    stopper.report("new", 1, best)
    assert stopper.report("new", 2, 0.0) is decision


def test_an_even_number_of_others_takes_the_middle_of_two() -> None:
    stopper = build(grace_epochs=1, min_trials=4)
    tell(stopper, OTHERS | {"d": [4.0, 4.0]})  # means 2, 3, 4, 6
    assert [stopper.report("new", 1, 3.4), stopper.report("new", 2, 3.4)] == [CONTINUE, STOP]
    assert stopper.report("newer", 2, 3.5) is CONTINUE


def test_it_minimises() -> None:
    stopper = build("min", grace_epochs=1)
    tell(stopper, OTHERS)
    assert stopper.report("new", 2, 3.01) is STOP
    assert stopper.report("newer", 2, 3.0) is CONTINUE


def test_means_leave_out_the_grace_period() -> None:
    stopper = build(grace_epochs=2)
    tell(stopper, {trial: [-1000.0, 1.0] for trial in "abc"})
    assert stopper.report("new", 2, 0.9) is STOP


def test_nothing_stops_in_the_grace_period() -> None:
    stopper = build()
    tell(stopper, {trial: [1.0, 1.0, 1.0] for trial in "abc"})
    assert [stopper.report("new", epoch, 0.0) for epoch in (1, 2, 3)] == [CONTINUE, CONTINUE, STOP]


def test_nothing_stops_with_too_few_others_at_the_epoch() -> None:
    stopper = build(grace_epochs=1)
    tell(stopper, OTHERS | {"c": [5.0]})
    assert stopper.report("new", 2, -9.0) is CONTINUE


def test_ties_go_on() -> None:
    stopper = build(grace_epochs=1, min_trials=1)
    assert {stopper.report(trial, 1, 1.0) for trial in "abcde"} == {CONTINUE}


class _RayTrial:
    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


class _NothingWaits:
    def get_live_trials(self) -> list[Any]:
        return []


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("grace_epochs", [1, 4])
def test_it_decides_as_rays_rule(mode: Literal["min", "max"], grace_epochs: int) -> None:
    from ray.tune.schedulers import MedianStoppingRule

    rays = MedianStoppingRule(
        time_attr="epoch", metric="value", mode=mode, grace_period=grace_epochs, min_samples_required=3
    )
    ours = build(mode, grace_epochs=grace_epochs)
    generator = random.Random(0)
    trials = {f"{number}": _RayTrial(str(number)) for number in range(25)}
    epochs = dict.fromkeys(trials, 0)
    stopped = 0
    while epochs:
        trial = generator.choice(list(epochs))
        epochs[trial] += 1
        value = generator.gauss(int(trial) / 10, 1)
        decision = ours.report(trial, epochs[trial], value)
        expected = rays.on_trial_result(_NothingWaits(), trials[trial], {"epoch": epochs[trial], "value": value})
        assert decision.value.upper() == expected
        stopped += decision is STOP
        if decision is STOP or epochs[trial] == 12:
            del epochs[trial]
    assert stopped >= 5


def test_epochs_that_a_trial_leaves_out_are_no_obstacle() -> None:
    stopper = MedianStopping(grace_epochs=3, min_trials=2).build(mode="max", max_epochs=9, can_pause=False, trials=None)
    for trial in ("a", "b"):
        assert [stopper.report(trial, epoch, 0.5) for epoch in (2, 6)] == [Decision.CONTINUE] * 2
    assert stopper.report("c", 5, 0.1) is Decision.CONTINUE  # nothing of the others is known from 3 to 5
    assert stopper.report("c", 6, 0.1) is Decision.STOP
