"""What epochs and starts take, of trials whose times are the test's."""

import numpy as np
import pytest

from tests.history.events_of_a_run import computed, ended, event, fold, reported, started
from tuner.history.pace import Pace, pace_of, start_seconds, stay_times, still_trials, typical_epoch


def test_a_start_is_what_the_first_report_is_late() -> None:
    """Of 13 s, 11.6 were the start of a worker."""
    record = fold(event("study_started", 0.0), started(0, 0.0), *(reported(0, k, 11.6 + 0.7 * k) for k in (1, 2)))
    trial = record.trials["00000"]
    assert stay_times(trial) == ([pytest.approx(12.3)], [pytest.approx(0.7)])
    assert start_seconds(trial) == pytest.approx(11.6)


def test_a_trial_of_one_epoch_is_measured_by_the_others() -> None:
    record = fold(
        started(0, 0.0), reported(0, 1, 12.0), ended(0, "stopped", 12.0),
        started(1, 12.0), reported(1, 1, 14.0), reported(1, 2, 16.0),
    )  # fmt: skip
    trials = list(record.trials.values())
    assert typical_epoch(trials) == pytest.approx(2.0)
    assert start_seconds(trials[0], typical_epoch(trials)) == pytest.approx(10.0)
    assert start_seconds(trials[0]) == 0.0


def test_a_trial_that_goes_on_has_a_start_again_and_its_pause_is_no_epoch() -> None:
    record = fold(
        started(0, 0.0), reported(0, 1, 2.0), reported(0, 2, 3.0, "pause"), event("trial_paused", 3.0, trial="00000", epoch=2),
        event("trial_resumed", 100.0, trial="00000", epoch=2), reported(0, 3, 103.0), reported(0, 4, 104.0),
    )  # fmt: skip
    trial = record.trials["00000"]
    assert stay_times(trial) == ([2.0, 3.0], [1.0, 1.0])
    assert start_seconds(trial) == pytest.approx(3.0)


def test_features_that_trials_wait_for_are_no_part_of_their_starts_and_no_silence() -> None:
    """The second trial waits for those that the first one computes; 2 s and 5 s are their own."""
    waiting = [event("study_started", 0.0), started(0, 0.0), started(1, 0.0)]
    waiting += [computed(0, images, 2.0 + 2.5 * images, 2.5 * images, 250 - 2.5 * images) for images in (20, 60, 100)]
    record = fold(*waiting)
    assert still_trials(record, 250.0) == {}
    record = fold(*waiting, reported(0, 1, 255.0), reported(1, 1, 258.0))
    assert [stay_times(trial)[0] for trial in record.trials.values()] == [[5.0], [8.0]]
    assert record.trials["00000"].features is None
    assert record.running_seconds(258.0) == 516.0  # but their time on the devices


@pytest.mark.parametrize(("told", "epoch"), [({}, 6.0), ({"seconds": 0.5}, 0.5), ({"seconds": 36.0}, 6.0)])
def test_of_the_first_report_an_epoch_takes_what_the_trial_says(told: dict[str, float], epoch: float) -> None:
    """Of 10 s the start of the worker is the rest; 36 s were those of features, which aren't part of the 10 s."""
    pace = pace_of(fold(event("study_started", 0.0), started(0, 0.0), reported(0, 1, 10.0, **told)))
    assert pace is not None
    assert pace.epoch_seconds == (epoch,)
    assert pace.opening == 10.0 - epoch


def test_the_pace_leaves_out_the_first_start_of_each_worker() -> None:
    events = [event("study_started", 0.0), started(0, 0.0), *(reported(0, k, 20.0 + k) for k in (1, 2, 3))]
    events += [ended(0, "completed", 23.0), started(1, 23.0), *(reported(1, k, 24.0 + k) for k in (1, 2, 3))]
    pace = pace_of(fold(*events))
    assert pace is not None
    assert pace.epoch_seconds == (1.0, 1.0)
    assert pace.start_seconds == pytest.approx(1.0)


def of_gaps(*trials: list[float]) -> Pace:
    """The pace of trials that begin together, each by the times of its epochs after the first."""
    events = [event("study_started", 0.0)]
    for number, gaps in enumerate(trials):
        times = np.cumsum([1.0, *gaps])
        events += [started(number, 0.0), *(reported(number, k + 1, float(at)) for k, at in enumerate(times))]
    pace = pace_of(fold(*events))
    assert pace is not None
    return pace


def test_a_trial_of_two_epochs_is_expected_to_be_more_like_the_others() -> None:
    """Its one epoch after the first took 3 s, those of the others 1 s; a long trial's own epochs say more."""
    short, long = of_gaps(*[[1.0] * 9] * 4, [3.0]), of_gaps(*[[1.0] * 9] * 4, [3.0] * 9)
    assert short.own["00004"] == pytest.approx(3 ** (1 / 3))
    assert long.own["00004"] == pytest.approx(3 ** (9 / 11))


def test_of_the_time_until_the_first_report_a_part_is_the_start() -> None:
    pace = pace_of(fold(event("study_started", 0.0), started(0, 0.0), reported(0, 1, 10.0)))
    assert pace is not None
    assert pace.epoch_seconds == (6.0,)
    assert pace.opening == pytest.approx(4.0)


def test_before_the_first_report_there_is_no_pace() -> None:
    assert pace_of(fold(event("study_started", 0.0), started(0, 0.0))) is None


def test_a_trial_that_reports_nothing_for_many_times_the_longest_epoch_stands_still() -> None:
    run = fold(
        event("study_started", 0.0), started(0, 0.0), *(reported(0, k, 20.0 * k, accuracy=0.1) for k in range(1, 4)),
        started(1, 50.0), reported(1, 1, 70.0, accuracy=0.1),
    )  # fmt: skip
    assert still_trials(run, 160.0) == {}
    assert still_trials(run, 165.0) == {"00000": 105.0}
    assert still_trials(run, 175.0) == {"00000": 115.0, "00001": 105.0}


def test_short_epochs_make_no_short_silence_conspicuous_and_before_the_first_epoch_none_is() -> None:
    quick = fold(event("study_started", 0.0), started(0, 0.0), reported(0, 1, 0.1, accuracy=0.1))
    assert still_trials(quick, 60.0) == {}
    assert still_trials(quick, 61.0) == {"00000": 60.9}
    assert still_trials(fold(event("study_started", 0.0), started(0, 0.0)), 9000.0) == {}


def placed(number: int, at: float) -> dict[str, object]:
    return event("trial_placed", at, trial=f"{number:05d}", host="here", pid=1, devices=["1 CPU"])


def test_a_worker_that_has_started_begins_the_next_trial_at_once() -> None:
    """Of 10 s the process took 9: the next trial on it won't."""
    record = fold(event("study_started", 0.0), started(0, 0.0), placed(0, 9.0), reported(0, 1, 10.0, seconds=0.5))
    pace = pace_of(record)
    assert pace is not None
    assert pace.epoch_seconds == (0.5,)
    assert pace.start_seconds == pytest.approx(0.5)
    assert pace.opening == pytest.approx(9.5)
    longer = fold(*(started(0, 0.0), placed(0, 9.0), *(reported(0, k, 9.8 + 0.2 * k) for k in (1, 2))))
    assert pace_of(longer) is not None
    assert pace_of(longer).start_seconds == pytest.approx(0.8)  # type: ignore[union-attr]


def test_the_second_stay_of_a_trial_is_no_workers_first() -> None:
    """Both workers took 30 s to start; a trial that goes on begins after 1 s."""
    paused = event("trial_paused", 31.0, trial="00000", epoch=1)
    record = fold(
        event("study_started", 0.0), started(0, 0.0), started(1, 0.0), reported(0, 1, 31.0, "pause"), paused,
        reported(1, 1, 31.0), reported(1, 2, 32.0),
        event("trial_resumed", 32.0, trial="00000", epoch=1), reported(0, 2, 34.0), reported(0, 3, 35.0),
    )  # fmt: skip
    pace = pace_of(record, workers=2)
    assert pace is not None
    assert pace.start_seconds == pytest.approx(1.0)


def test_before_two_epochs_in_a_row_later_trials_show_what_a_start_is() -> None:
    events = [event("study_started", 0.0), started(0, 0.0), reported(0, 1, 30.0), ended(0, "stopped", 30.0)]
    events += [started(1, 30.0), reported(1, 1, 31.0), ended(1, "stopped", 31.0)]
    pace = pace_of(fold(*events))
    assert pace is not None
    assert pace.epoch_seconds == (0.6,)
    assert pace.start_seconds == pytest.approx(0.4)
    assert pace.opening == pytest.approx(29.4)
