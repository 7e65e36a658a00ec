"""The rest of a search, played by its own early stopping: exact where nothing is left to chance."""

import numpy as np
import pytest

from tests.history.events_of_a_run import ended, event, reported, started
from tuner.history.events import Event
from tuner.history.pace import pace_of
from tuner.history.records import RunRecord
from tuner.results.rest_simulation import Ahead, Rest, _spread


def paused(number: int, begun: float, value: float) -> list[Event]:
    """A trial that trained three epochs of 10 s and waits at its first rung."""
    epochs = [
        reported(number, k, begun + 10.0 * k, "pause" if k == 3 else "continue", accuracy=value) for k in (1, 2, 3)
    ]
    return [started(number, begun), *epochs, event("trial_paused", begun + 30.0, trial=f"{number:05d}", epoch=3)]


def nine_paused() -> list[Event]:
    trials = [one for number in range(9) for one in paused(number, 30.0 * number, 0.1 * number)]
    return [event("study_started", 0.0), *trials]


def games(events: list[Event], ahead: Ahead, now: float, planned: int) -> list[float]:
    record = RunRecord("accuracy", "max", events)
    pace = pace_of(record, ahead.workers or 1)
    assert pace is not None
    rest = Rest(record, ahead, pace, np.random.default_rng(0), now)
    return sorted({round(float(seconds), 6) for seconds in rest.games(planned, ahead.workers or 1)})


@pytest.mark.parametrize("brackets", [False, True])
@pytest.mark.parametrize(("workers", "seconds"), [(1, 3 * 60 + 180), (3, 60 + 180)])
def test_of_nine_that_wait_three_go_on_and_one_of_those(brackets: bool, workers: int, seconds: float) -> None:
    ahead = Ahead(9, 27, (3, 9), workers=workers, brackets=brackets)
    assert games(nine_paused(), ahead, 270.0, 9) == [seconds]


def test_a_trial_that_was_resumed_is_not_resumed_again() -> None:
    events = [*nine_paused(), event("trial_resumed", 270.0, trial="00008", epoch=3)]
    events += [reported(8, epoch, 240.0 + 10.0 * epoch, accuracy=0.9) for epoch in (4, 5)]
    assert games(events, Ahead(9, 27, (3, 9), workers=1), 290.0, 9) == [40 + 2 * 60 + 180]


def test_trials_fail_as_often_as_they_did() -> None:
    """Nine of ten failed at their second epoch: the other ten will not train twenty epochs each (200 s).

    How often trials fail and how fast they train are drawn for each game: one game may be far from the middle.
    """
    events = [event("study_started", 0.0)]
    for number in range(10):
        at = 20.0 * number
        last = 10 if number == 0 else 1
        events += [started(number, at), *(reported(number, k, at + k, accuracy=0.1) for k in range(1, last + 1))]
        events += [ended(number, "completed" if number == 0 else "failed", at + last + 1)]
    found = games(events, Ahead(20, 20, (9,), workers=1), 200.0, 20)
    assert np.median(found) < 50
    assert max(found) < 200


def test_a_rung_without_a_number_and_a_clock_that_was_set_back_do_no_harm() -> None:
    events = [event("study_started", 0.0), *paused(0, 100.0, 0.5), *paused(1, 60.0, 0.4)]
    events += [started(2, 200.0), reported(2, 1, 150.0, accuracy=0.2), reported(2, 3, 160.0, accuracy=float("nan"))]
    events += [reported(2, 9, 170.0, accuracy=0.7), ended(2, "stopped", 170.0)]
    assert min(games(events, Ahead(6, 27, (3, 9), workers=2), 200.0, 6)) > 0


def test_many_thousand_trials_are_told_by_some_hundred() -> None:
    found = games([*nine_paused()], Ahead(9000, 27, (3, 9), workers=1), 270.0, 9000)
    assert 9000 * 30 < min(found) < max(found) < 9000 * 120


def test_the_spread_of_values_is_a_normal_ones_standard_deviation() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 20_000)
    assert _spread(values, 1.0) == pytest.approx(2.0, rel=0.03)
    assert _spread(np.array([1.0, 1.0, 1.0, 5.0, 1.0]), 1.0) == pytest.approx(1.6)  # by the outlier, not by quartiles
    assert _spread(np.ones(5), 0.7) == 0.7
