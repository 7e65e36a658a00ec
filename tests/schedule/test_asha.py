import random
from typing import Any, Literal

import pytest

from tests.schedule.driving import run_search
from tuner.schedule import ASHA, Decision, EarlyStopper

CONTINUE, STOP, PAUSE = Decision.CONTINUE, Decision.STOP, Decision.PAUSE


def build(
    scheduler: ASHA,
    *,
    mode: Literal["min", "max"] = "max",
    max_epochs: int = 9,
    can_pause: bool = True,
    trials: int | None = None,
) -> EarlyStopper:
    return scheduler.build(mode=mode, max_epochs=max_epochs, can_pause=can_pause, trials=trials)


def judged(stopper: EarlyStopper, epoch: int, values: list[float]) -> list[Decision]:
    """What a row of trials hears that reach the epoch one after another."""
    decisions = []
    for number, value in enumerate(values):
        stopper.start(str(number))
        decisions.append(stopper.report(str(number), epoch, value))
    return decisions


# Stopping


def test_stopping_compares_with_the_percentile_of_those_before() -> None:
    # cutoffs, two thirds up in the sorted values before: -, 1, 1 + 2/3, 2 + 1/3 of (1, 2, 3), 3 of (1, 2, 3, 3)
    values = [1.0, 2.0, 3.0, 2.3, 3.0]
    assert judged(build(ASHA(rule="stop")), 3, values) == [CONTINUE, CONTINUE, CONTINUE, STOP, CONTINUE]


def test_stopping_counts_the_stopped_ones_too() -> None:
    # cutoffs: -, 3, 1 + 2·2/3 of (1, 3), 2.34 + a third of the way to 3 of (1, 2.34, 3)
    assert judged(build(ASHA(rule="stop")), 3, [3.0, 1.0, 2.34, 2.5]) == [CONTINUE, STOP, CONTINUE, STOP]


def test_stopping_minimises() -> None:
    assert judged(build(ASHA(rule="stop"), mode="min"), 3, [3.0, 1.0, 2.0, 1.0]) == [CONTINUE, CONTINUE, STOP, CONTINUE]


def test_stopping_keeps_ties() -> None:
    assert judged(build(ASHA(rule="stop")), 3, [1.0] * 5) == [CONTINUE] * 5


def test_stopping_with_reduction_factor_four_keeps_the_best_quarter() -> None:
    # cutoff after 0, 4, 8, 12, 16 is 12: three quarters up
    stopper = build(ASHA(reduction_factor=4, rule="stop"))
    assert judged(stopper, 3, [0.0, 4.0, 8.0, 12.0, 16.0, 11.9]) == [CONTINUE] * 5 + [STOP]


def test_stopping_judges_at_rungs_only_and_once_each() -> None:
    stopper = build(ASHA(rule="stop"), max_epochs=28)
    for epoch in range(1, 28):
        stopper.report("best", epoch, 1.0)
    assert [stopper.report("weak", epoch, 0.0) for epoch in (1, 2)] == [CONTINUE, CONTINUE]
    assert stopper.report("weak", 3, 1.0) is CONTINUE
    assert [stopper.report("weak", epoch, 0.0) for epoch in (3, 4, 8)] == [CONTINUE] * 3
    assert stopper.report("weak", 9, 0.0) is STOP


def test_a_trial_shorter_than_a_rung_ends_before_it_and_leaves_no_trace() -> None:
    stopper = build(ASHA(rule="stop"))
    stopper.start("short")
    assert [stopper.report("short", epoch, 9.0) for epoch in (1, 2)] == [CONTINUE, CONTINUE]
    stopper.end("short")
    assert judged(stopper, 3, [0.0, 1.0]) == [CONTINUE, CONTINUE]


@pytest.mark.parametrize("reduction_factor", [2, 3, 4, 2.5])
@pytest.mark.parametrize("grace_epochs", [1, 3])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_stopping_decides_as_rays_scheduler(
    mode: Literal["min", "max"], grace_epochs: int, reduction_factor: float
) -> None:
    from ray.tune.schedulers.async_hyperband import AsyncHyperBandScheduler

    max_epochs, sign = 30, 1 if mode == "max" else -1
    rays = AsyncHyperBandScheduler(
        mode=mode, max_t=max_epochs, grace_period=grace_epochs, reduction_factor=reduction_factor
    )
    ours = build(ASHA(grace_epochs, reduction_factor, "stop"), mode=mode, max_epochs=max_epochs)
    generator = random.Random(0)
    live = {str(number): 0 for number in range(60)}
    stopped = 0
    while live:
        trial = generator.choice(list(live))
        live[trial] += 1
        value = generator.choice([generator.gauss(0, 1), 0.0, 0.5])  # ties too
        decision = ours.report(trial, live[trial], value)
        expected = rays._brackets[0].on_result(_RayTrial(trial), live[trial], sign * value)
        assert decision.value.upper() == expected
        stopped += decision is STOP
        if decision is STOP or live[trial] == max_epochs - 1:
            del live[trial]
    assert stopped > 20


class _RayTrial:
    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


# Promoting


def test_promotion_falls_back_to_stopping_where_trials_cannot_pause() -> None:
    stopper = build(ASHA(rule="promote"), can_pause=False)
    assert judged(stopper, 3, [3.0, 1.0]) == [CONTINUE, STOP]


def test_promotion_is_the_default() -> None:
    assert judged(build(ASHA()), 3, [3.0, 1.0]) == [PAUSE, PAUSE]


def test_the_best_of_those_that_got_farthest_is_trained_to_its_end_where_no_share_of_them_goes_on() -> None:
    stopper = build(ASHA(grace_epochs=1), trials=6)  # rungs 1 and 3: two of six reach the second, none of two goes on
    curves = {str(number): [-float(number)] * 9 for number in range(6)}
    assert run_search(stopper, curves) == {"0": 9, "1": 3, "2": 1, "3": 1, "4": 1, "5": 1}
    assert stopper.resumable() is None


def test_no_survivor_is_named_while_trials_are_to_come_or_on_their_way() -> None:
    stopper = build(ASHA(), trials=2)
    assert judged(stopper, 3, [1.0]) == [PAUSE]
    assert stopper.resumable() is None
    stopper.start("1")
    assert stopper.resumable() is None
    assert stopper.report("1", 3, 0.5) is PAUSE
    assert [stopper.resumable(), stopper.resumable()] == ["0", None]


def test_a_survivor_that_failed_is_not_replaced_by_a_worse_one() -> None:
    stopper = build(ASHA(), trials=2)
    judged(stopper, 3, [1.0, 0.5])
    stopper.end("0")
    assert stopper.resumable() is None


def test_promotion_pauses_everything_and_resumes_the_best_third() -> None:
    stopper = build(ASHA(rule="promote"))
    assert judged(stopper, 3, [1.0, 3.0]) == [PAUSE, PAUSE]
    assert stopper.resumable() is None
    stopper.start("2")
    assert stopper.report("2", 3, 2.0) is PAUSE
    assert [stopper.resumable(), stopper.resumable()] == ["1", None]


def test_promotion_hands_out_better_ones_that_come_later() -> None:
    stopper = build(ASHA(rule="promote"))
    judged(stopper, 3, [1.0, 2.0, 3.0])
    assert stopper.resumable() == "2"
    for trial, value in (("3", 4.0), ("4", 5.0), ("5", 0.0)):
        stopper.start(trial)
        stopper.report(trial, 3, value)
    assert [stopper.resumable(), stopper.resumable(), stopper.resumable()] == ["4", "3", None]


def test_promotion_prefers_the_highest_rung() -> None:
    stopper = build(ASHA(grace_epochs=1, rule="promote"))
    judged(stopper, 1, [float(value) for value in range(12)])
    promoted = [stopper.resumable() for _ in range(3)]
    assert promoted == ["11", "10", "9"]
    for trial, value in zip(promoted, [1.0, 2.0, 3.0], strict=True):
        assert stopper.report(str(trial), 2, value) is CONTINUE
        assert stopper.report(str(trial), 3, value) is PAUSE
    assert [stopper.resumable(), stopper.resumable(), stopper.resumable()] == ["9", "8", None]


def test_promotion_minimises_and_breaks_ties_by_id() -> None:
    stopper = build(ASHA(rule="promote"), mode="min")
    judged(stopper, 3, [2.0, 1.0, 1.0, 5.0, 5.0, 5.0])
    assert [stopper.resumable(), stopper.resumable(), stopper.resumable()] == ["1", "2", None]


def test_a_trial_that_is_over_is_never_promoted_but_holds_its_place() -> None:
    stopper = build(ASHA(rule="promote"))
    judged(stopper, 3, [3.0, 2.0, 1.0])
    stopper.end("0")
    assert stopper.resumable() is None


def test_promotion_pauses_once_at_a_rung_even_if_the_epoch_is_trained_again() -> None:
    stopper = build(ASHA(rule="promote"))
    judged(stopper, 3, [1.0, 2.0, 3.0])
    assert stopper.resumable() == "2"
    assert [stopper.report("2", epoch, 3.0) for epoch in (3, 4, 8)] == [CONTINUE] * 3


def test_promotion_eliminates_what_cannot_make_it_in_the_budget() -> None:
    stopper = build(ASHA(rule="promote"), trials=6)  # at most two of six are promoted
    judged(stopper, 3, [1.0, 2.0])
    assert stopper.eliminated() == []
    stopper.start("2")
    stopper.report("2", 3, 3.0)
    assert stopper.eliminated() == ["0"]
    assert stopper.eliminated() == []


def test_promotion_without_a_budget_eliminates_nothing_until_no_more_come() -> None:
    stopper = build(ASHA(rule="promote"))
    judged(stopper, 3, [1.0, 2.0, 3.0, 4.0])
    assert stopper.eliminated() == []
    stopper.more_coming(False)
    assert stopper.eliminated() == ["2", "1", "0"]
    assert [stopper.resumable(), stopper.resumable()] == ["3", None]


@pytest.mark.parametrize(
    ("values", "epochs"),
    [
        (range(9, 0, -1), [9, 3, 3, 1, 1, 1, 1, 1, 1]),
        (range(9), [1, 1, 3, 3, 9, 9, 9, 9, 9]),  # each new one is the best so far
    ],
)
def test_promotion_eliminates_at_upper_rungs_too(values: range, epochs: list[int]) -> None:
    stopper = build(ASHA(grace_epochs=1, rule="promote"), max_epochs=9, trials=9)
    curves = {str(number): [float(value)] * 9 for number, value in enumerate(values)}
    trained = run_search(stopper, curves)
    assert [trained[trial] for trial in curves] == epochs
    assert sorted(stopper.eliminated()) == [trial for trial in curves if trained[trial] < 9]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_eliminated_would_not_have_been_promoted(seed: int) -> None:
    """The same random search with and without asking for eliminated trials trains the same epochs."""

    def epochs_trained(*, ask: bool) -> tuple[dict[str, int], set[str]]:
        generator = random.Random(seed)
        stopper = build(ASHA(grace_epochs=1, reduction_factor=2, rule="promote"), max_epochs=9, trials=25)
        running: dict[str, int] = {}
        epochs: dict[str, int] = {}
        eliminated: set[str] = set()
        started = 0
        while True:
            while len(running) < 4:
                trial = stopper.resumable()
                if trial is None and started < 25:
                    trial, started = f"{started:02}", started + 1
                    stopper.start(trial)
                if trial is None:
                    break
                running[trial] = epochs.get(trial, 0)
            if not running:
                return epochs, eliminated
            trial = generator.choice(sorted(running))
            running[trial] += 1
            epochs[trial] = running[trial]
            if generator.random() < 0.03 or running[trial] == 9:
                stopper.end(trial)
                del running[trial]
            elif stopper.report(trial, running[trial], generator.random()) is PAUSE:
                del running[trial]
            if ask:
                new = stopper.eliminated()
                assert not eliminated & set(new)
                assert not running.keys() & set(new)
                eliminated |= set(new)

    with_asking, eliminated = epochs_trained(ask=True)
    without_asking, _ = epochs_trained(ask=False)
    assert with_asking == without_asking
    finished = {trial for trial, epoch in with_asking.items() if epoch == 9}
    assert eliminated
    assert not eliminated & finished


def test_every_paused_trial_is_resumed_or_eliminated_in_the_end() -> None:
    stopper = build(ASHA(grace_epochs=1, rule="promote"), max_epochs=10)
    curves: dict[str, Any] = {f"{number:02}": [(number * 7 % 20) / 20] * 10 for number in range(20)}
    epochs = run_search(stopper, curves)
    finished = {trial for trial, epoch in epochs.items() if epoch == 10}
    assert set(stopper.eliminated()) == curves.keys() - finished


def test_a_trusted_trial_is_judged_at_the_second_rung_first_and_counts_at_the_first() -> None:
    stopper = build(ASHA(grace_epochs=1))
    stopper.start("trusted")
    stopper.trust("trusted")
    assert [stopper.report("trusted", epoch, 0.0) for epoch in (1, 2, 3)] == [CONTINUE, CONTINUE, PAUSE]
    assert judged(stopper, 1, [1.0, 2.0]) == [PAUSE, PAUSE]
    assert [stopper.resumable(), stopper.resumable()] == ["1", None]


def test_with_a_single_rung_trust_changes_nothing() -> None:
    stopper = build(ASHA(), max_epochs=9)
    stopper.start("trusted")
    stopper.trust("trusted")
    assert stopper.report("trusted", 3, 0.0) is PAUSE


@pytest.mark.parametrize("scheduler", [ASHA(rule="stop"), ASHA(rule="promote")])
def test_schedulers_that_stop_take_trust_without_notice(scheduler: ASHA) -> None:
    stopper = build(scheduler, can_pause=False)
    stopper.start("0")
    stopper.trust("0")
    assert stopper.report("0", 3, 0.0) is CONTINUE


def test_a_grace_period_of_one_epoch_is_allowed_and_its_cost_is_told() -> None:
    advice = ASHA(grace_epochs=1).advice(9)
    assert advice is not None
    assert advice.startswith("grace_epochs=1 compares trials after their first epoch, which says little of their last")
    assert ASHA(grace_epochs=1).advice(3) is None  # there is hardly another choice
    assert ASHA(grace_epochs=2).advice(9) is None
    assert ASHA().advice(9) is None
