"""How many seconds of search had passed at a time."""

import pytest

from tuner.history.spent import ActiveTime


@pytest.fixture
def active() -> ActiveTime:
    """A driver from 100 to 110, and one from 200 on."""
    found = ActiveTime()
    found.begin(100.0)
    found.end(110.0)
    found.begin(200.0)
    return found


@pytest.mark.parametrize(
    ("time", "seconds"),
    [(50.0, 0.0), (100.0, 0.0), (104.0, 4.0), (110.0, 10.0), (150.0, 10.0), (200.0, 10.0), (203.0, 13.0)],
)
def test_pauses_between_drivers_do_not_count(active: ActiveTime, time: float, seconds: float) -> None:
    assert active.at(time) == seconds


def test_seconds_are_of_drivers_that_have_ended_and_until_also_of_the_one_that_works(active: ActiveTime) -> None:
    assert (active.seconds, active.until(203.0), active.until(None)) == (10.0, 13.0, 10.0)
    active.end(204.0)
    active.end(300.0)  # none works on it
    assert (active.seconds, active.until(500.0), active.at(500.0)) == (14.0, 14.0, 14.0)


def test_of_drivers_whose_clocks_differ_the_later_counts_where_both_worked() -> None:
    active = ActiveTime([(1000.0, 2000.0), (500.0, 900.0)])
    assert [active.at(time) for time in (600.0, 950.0, 1500.0, 2500.0)] == [1100.0, 1400.0, 500.0, 1400.0]


def test_a_clock_that_was_set_back_takes_no_time_away() -> None:
    active = ActiveTime()
    active.begin(100.0)
    active.end(90.0)
    assert (active.seconds, active.at(100.0)) == (0.0, 0.0)


def test_before_any_driver_no_time_has_passed() -> None:
    assert ActiveTime().at(5.0) == 0.0
