"""The time left, of searches whose times are the test's; benchmarks/time_left.py measures how often it holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.time_left import KINDS, Score, in_space, simulated
from tests.history.events_of_a_run import computed, ended, event, reported, started
from tests.loop.simulation import study
from tests.results.simulated import simulated as simulated_run
from tuner import ASHA, Grid, HyperBand, MedianStopping, MultiFidelityGP, NoEarlyStopping, Random, choice
from tuner.console.standing import Plan
from tuner.history.events import Event
from tuner.history.pace import pace_of
from tuner.history.records import RunRecord
from tuner.results.rest_simulation import Ahead, Rest
from tuner.results.time_left import TimeLeft, ahead_of, features_told, rounded, silence_sentence, time_left
from tuner.schedule.base import Scheduler
from tuner.search.base import SearchAlgorithm

AHEAD = Ahead(trials=4, max_epochs=10, workers=1)


def record(*events: Event) -> RunRecord:
    return RunRecord("accuracy", "max", events)


def trained(number: int, begun: float, epochs: int, *, start: float = 0.0, epoch: float = 10.0) -> list[Event]:
    """A trial that starts, and reports at even intervals."""
    return [
        started(number, begun),
        *(reported(number, k, begun + start + k * epoch, accuracy=0.1) for k in range(1, epochs + 1)),
    ]


def told(found: TimeLeft | None) -> TimeLeft:
    assert found is not None
    return found


def test_nobody_knows_before_the_first_report_and_after_the_end() -> None:
    assert time_left(record(event("study_started", 0.0), started(0, 1.0)), AHEAD, 5.0) is None
    over = record(event("study_started", 0.0), *trained(0, 0.0, 3), event("study_ended", 40.0, reason="trials"))
    assert time_left(over, AHEAD, 41.0) is None


def test_without_any_limit_nobody_knows() -> None:
    known = record(event("study_started", 0.0), *trained(0, 0.0, 3))
    assert time_left(known, Ahead(None, 10), 30.0) is None


def test_the_interval_holds_the_truth_of_even_epochs() -> None:
    found = told(time_left(record(event("study_started", 0.0), *trained(0, 0.0, 5)), AHEAD, 50.0))
    assert found.low < 355 < found.high  # 35 epochs of 10 s, and the conclusion
    assert 250 < found.middle < 480


def test_the_rest_of_features_counts_and_their_time_so_far_is_no_pace() -> None:
    """The third trial computes those of its model for another 200 s."""
    opening = [event("study_started", 0.0), *trained(0, 0.0, 10), *trained(1, 100.0, 10)]
    two = [*opening, ended(0, "completed", 100.0), ended(1, "completed", 200.0), started(2, 200.0)]
    plain = told(time_left(record(*two), replace(AHEAD, trials=3), 200.0))
    computing = record(*two, computed(2, 600, 400.0, 200.0, 200.0))
    found = told(time_left(computing, replace(AHEAD, trials=3), 400.0))
    assert found.middle == pytest.approx(plain.middle + 200.0, rel=0.1)
    assert features_told(computing, 440.0) == {
        "00002": "computing features of mobilenet_v2: 600 of 1,200 images, 3 min left"
    }


def test_a_start_is_no_pace() -> None:
    """Of 23 s until the second epoch, 21 were the worker's start: 856 s were told where 26 were left."""
    slow = record(event("study_started", 0.0), *trained(0, 1.0, 2, start=20.0, epoch=1.0))
    found = told(time_left(slow, AHEAD, 23.0))
    assert 20 < found.low < 85 < found.high < 200  # 38 epochs of 1 s, starts, and a report that loads as much


def test_the_end_of_the_last_trial_is_not_the_end() -> None:
    last = [
        *trained(0, 0.0, 10), ended(0, "completed", 100.0),
        *trained(1, 100.0, 9),
    ]  # fmt: skip
    found = told(time_left(record(event("study_started", 0.0), *last), Ahead(2, 10, workers=1), 199.9))
    assert 0.5 < found.low < found.high < 5  # the report
    scored = told(time_left(record(event("study_started", 0.0), *last), Ahead(2, 10, workers=1, scored=True), 199.9))
    assert scored.middle / found.middle > 1.5  # another worker starts, and looks at all test images


def test_on_a_busy_machine_the_report_takes_half_as_long_as_the_start_of_a_worker() -> None:
    slow = [
        *trained(0, 0.0, 10, start=100.0, epoch=1.0), ended(0, "completed", 110.0),
        *trained(1, 110.0, 9, epoch=1.0),
    ]  # fmt: skip
    found = told(time_left(record(event("study_started", 0.0), *slow), Ahead(2, 10, workers=1), 119.0))
    assert found.low < 51 < found.high < 100


def test_slow_epochs_count_as_much_as_quick_ones() -> None:
    """Three of ten epochs take 30 s in place of 10: what is left takes longer than the median epoch says."""
    lengths = [10, 10, 30, 10, 10, 30, 10, 10, 30, 10]
    times = [sum(lengths[: k + 1]) for k in range(10)]
    first = [started(0, 0.0), *(reported(0, k + 1, float(at), accuracy=0.1) for k, at in enumerate(times))]
    known = record(event("study_started", 0.0), *first, ended(0, "completed", 160.0))
    pace = pace_of(known)
    assert pace is not None
    assert pace.own["00000"] == pytest.approx(150 / 9)  # the first epoch has the start in it


def test_a_machine_that_slept_is_no_pace() -> None:
    """One gap of three hours, as of a closed laptop, is not what epochs take from now on."""
    times = [10.0, 20.0, 30.0, 40.0, 10840.0, 10850.0]
    known = [started(0, 0.0), *(reported(0, k + 1, at, accuracy=0.1) for k, at in enumerate(times))]
    pace = pace_of(record(event("study_started", 0.0), *known))
    assert pace is not None
    assert pace.own["00000"] < 20


def test_the_last_epochs_say_how_fast_a_trial_is_now() -> None:
    """Others began to use the machine: ten epochs of 1 s were followed by a dozen of 4 s."""
    times = [float(k) for k in range(1, 11)] + [10.0 + 4 * k for k in range(1, 13)]
    known = [started(0, 0.0), *(reported(0, k + 1, at, accuracy=0.1) for k, at in enumerate(times))]
    pace = pace_of(record(event("study_started", 0.0), *known))
    assert pace is not None
    assert pace.own["00000"] == pytest.approx(4.0)


def test_four_even_trials_predict_the_other_36() -> None:
    events = [event("study_started", 0.0)]
    for number in range(4):
        events += [*trained(number, 100.0 * number, 10), ended(number, "completed", 100.0 * (number + 1))]
    found = told(time_left(record(*events), Ahead(40, 10, workers=1), 400.0))
    assert found.low < 3600 < found.high < 2.0 * found.low


def test_where_the_winner_is_scored_part_of_an_epoch_follows() -> None:
    last = [*trained(0, 0.0, 10, epoch=100.0), ended(0, "completed", 1000.0), *trained(1, 1000.0, 9, epoch=100.0)]
    known = record(event("study_started", 0.0), *last)
    ahead = Ahead(2, 10, workers=1)
    plain, scored = (told(time_left(known, replace(ahead, scored=scored), 1999.0)) for scored in (False, True))
    assert plain.middle < 20
    assert scored.middle == pytest.approx(plain.middle + 30, rel=0.5)


def test_trials_are_as_long_as_those_that_have_ended() -> None:
    events = [event("study_started", 0.0)]
    for number in range(20):
        events += [*trained(number, 20.0 * number, 2), ended(number, "stopped", 20.0 * number + 20)]
    found = told(time_left(record(*events), Ahead(40, 10, (2,), workers=1, own_rule=True), 400.0))
    assert found.low < 440 < found.high
    assert found.high < 700  # and not 20 trials of 10 epochs


def test_promotions_count() -> None:
    """30 trials wait at the first rung: a third of them goes on, and a third of those."""
    events = [event("study_started", 0.0)]
    for number in range(30):
        at = 30.0 * number
        events += [
            started(number, at),
            *(reported(number, k, at + 10.0 * k, "pause" if k == 3 else "continue", accuracy=0.1) for k in (1, 2, 3)),
            event("trial_paused", at + 30, trial=f"{number:05d}", epoch=3),
        ]
    found = told(time_left(record(*events), Ahead(30, 27, (3, 9), workers=1), 900.0))
    truth = 10 * 60 + 3 * 180 + 5
    assert 0.95 * found.low < truth < found.high


def test_the_limit_that_comes_first_says_what_is_left() -> None:
    known = record(event("study_started", 0.0), *trained(0, 0.0, 6))
    hours = told(time_left(known, Ahead(100, 10, workers=1, limits={"hours": 0.05}), 60.0))
    assert hours.low > 110
    assert hours.high < 160
    epochs = told(time_left(known, Ahead(100, 10, workers=1, limits={"total_epochs": 12}), 60.0))
    assert 30 < epochs.low < 60 < epochs.high < 130
    devices = told(time_left(known, Ahead(100, 10, workers=2, limits={"device_hours": 0.05}, devices=2), 60.0))
    assert devices.high < 60


def test_trials_of_an_earlier_driver_say_nothing_of_the_pace() -> None:
    earlier = [*trained(0, 0.0, 10, epoch=100.0), ended(0, "completed", 1000.0)]
    resumed = [event("study_resumed", 2000.0), *trained(1, 2000.0, 5, epoch=1.0)]
    known = record(event("study_started", 0.0), *earlier, *resumed)
    assert told(time_left(known, Ahead(2, 10, workers=1), 2005.0)).high < 30
    assert time_left(record(event("study_started", 0.0), *earlier, resumed[0]), Ahead(2, 10), 2001.0) is None


def test_the_same_record_gives_the_same_interval() -> None:
    known = record(event("study_started", 0.0), *trained(0, 0.0, 5))
    assert time_left(known, AHEAD, 50.0) == time_left(known, AHEAD, 50.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (12.4, "12 s"), (47.0, "45 s"), (200.0, "3 min"), (5000.0, "83 min"), (8000.0, "2 h 10 min")],
)
def test_times_have_no_more_digits_than_a_meaning(seconds: float, text: str) -> None:
    assert rounded(seconds) == text


def test_an_interval_is_short_text() -> None:
    assert str(TimeLeft(180.0, 240.0, 360.0)) == "about 4 min left (3 to 6 min)"
    assert str(TimeLeft(50.0, 100.0, 200.0)) == "about 2 min left (50 s to 3 min)"


@pytest.mark.parametrize(
    ("scheduler", "brackets", "own_rule", "factor"),
    [
        (ASHA(reduction_factor=4), False, False, 4),
        (HyperBand(reduction_factor=2), True, False, 2),
        (MedianStopping(), False, True, 3),
        (NoEarlyStopping(), False, True, 3),
    ],
)
def test_schedulers_are_known_by_what_a_run_records(
    tmp_path: Path, scheduler: Scheduler, brackets: bool, own_rule: bool, factor: float
) -> None:
    run = simulated_run(tmp_path, scheduler=scheduler)
    for ahead in (ahead_of(run), Plan.of_run(run, {}).ahead, Plan.of(study(scheduler=scheduler)).ahead):
        assert (ahead.brackets, ahead.own_rule, ahead.reduction_factor) == (brackets, own_rule, factor)


@pytest.mark.slow
def test_the_interval_holds_for_most_moments_of_simulated_searches() -> None:
    together = Score()
    for kind in KINDS:
        for seed in range(6):
            together.watch(simulated(kind, seed))
    figures = together.figures
    assert 0.7 < figures["held"] < 0.9
    assert figures["median_width"] < 1.0


def test_a_trial_that_stands_still_ends_nobody_knows_when() -> None:
    hanging = [
        event("study_started", 0.0), *trained(0, 0.0, 10), ended(0, "completed", 100.0), *trained(1, 100.0, 9),
    ]  # fmt: skip
    two = Ahead(2, 10, workers=1)
    assert told(time_left(record(*hanging), two, 191.0)).high < 60
    assert time_left(record(*hanging), two, 190.0 + 7 * 60) is None
    timed = told(time_left(record(*hanging), replace(two, limits={"hours": 1}), 190.0 + 7 * 60))
    assert 2900 < timed.low < timed.high < 3100
    assert time_left(record(*hanging), replace(two, limits={"total_epochs": 20}), 190.0 + 7 * 60) is None


def test_what_stands_still_is_said_with_the_longest_first() -> None:
    assert silence_sentence({}) == ""
    assert silence_sentence({"00018": 421.0}) == "00018 has reported nothing for 7 min (see hung_minutes)"
    several = silence_sentence({"00018": 421.0, "00003": 600.0, "00004": 75.0})
    assert several == "00003 has reported nothing for 10 min, 2 more for over 75 s (see hung_minutes)"


def test_what_is_added_to_an_ended_search_is_not_within_its_limits() -> None:
    beside = [
        event("study_started", 0.0), *trained(0, 0.0, 10), ended(0, "completed", 100.0),
        event("study_ended", 101.0, reason="total_epochs"), event("study_resumed", 110.0),
        event("confirmation_requested", 110.0, trials=["00000"], seeds=1, alone=True, ended_by="total_epochs"),
        {**started(1, 111.0), "repeats": "00000", "confirms": True}, reported(1, 1, 120.0, accuracy=0.1),
    ]  # fmt: skip
    assert time_left(record(*beside), Ahead(None, 10, workers=1, limits={"total_epochs": 10}), 121.0) is None


def test_the_first_report_comes_after_a_start_and_an_epoch() -> None:
    """Of 12.4 s until the demo's first report the epoch took 5, and 181 s were told where 75 were left."""
    first = record(event("study_started", 0.0), started(0, 0.0), reported(0, 1, 12.4, accuracy=0.1))
    found = told(time_left(first, Ahead(10, 5, workers=1), 12.4))
    assert found.low < 5 * 49 + 10 < found.high
    assert found.middle < 12.4 * 49 * 0.7


@pytest.mark.parametrize(("search", "better"), [(Random(), False), (Grid(), False), (MultiFidelityGP(), True)])
def test_whether_the_search_learns_is_read_from_the_run_and_from_the_study(
    tmp_path: Path, search: SearchAlgorithm, better: bool
) -> None:
    space = {"x": choice([0.1, 0.5])}
    run = simulated_run(tmp_path, search=search, space=space, curve=lambda config, epoch: config["x"] / epoch)
    assert ahead_of(run).learns is better
    assert Plan.of_run(run, {}).ahead.learns is better
    assert Plan.of(study(search=search, space=space)).ahead.learns is better


def test_a_search_that_learns_gets_worse_while_it_looks_around_and_better_after_that() -> None:
    """Six trials are known; the seventh is as good as they were or worse, the thirtieth better."""
    events = [event("study_started", 0.0)]
    for number in range(6):
        events += [started(number, 0.0), reported(number, 1, 10.0 + number, accuracy=0.1 * number)]
    known = record(*events)
    pace = pace_of(known)
    assert pace is not None

    def mean_of_new(begun: int, *, learning: bool) -> float:
        ahead = Ahead(40, 9, (1, 3), learns=learning)
        rest = Rest(known, ahead, pace, np.random.default_rng(0), 16.0)
        return float(np.mean([rest.first_score(begun) for _ in range(4000)]))

    plain = mean_of_new(0, learning=False)
    assert mean_of_new(24, learning=False) == plain
    assert mean_of_new(0, learning=True) < plain - 0.1
    assert mean_of_new(24, learning=True) > plain + 0.1


def test_the_more_a_search_learns_the_less_is_known_of_how_many_trials_go_on() -> None:
    """Without learning the interval is narrower, and holds."""
    wide, narrow = [], []
    for seed in range(3):
        search = in_space("many", "random, early stopping", seed, 50)
        assert not search.ahead.learns
        for ahead, found in ((search.ahead, narrow), (replace(search.ahead, learns=True), wide)):
            score = Score()
            score.watch(replace(search, ahead=ahead))
            found.extend(score.widths)
    assert np.median(narrow) < 0.9 * np.median(wide)
