"""What a trial is worth by noisy values, against curves whose truth is known."""

import math
import random
from statistics import fmean

import pytest

from tuner.history.worth import Worth, of_full_length, of_shortened

TRUTH = [1 - 0.5 * 0.5**epoch for epoch in range(1, 13)]  # rises, and is nearly flat at its end


def numbered(values: list[float]) -> list[tuple[int, float]]:
    return list(enumerate(values, start=1))


def test_a_lucky_epoch_counts_no_more_than_any_other() -> None:
    values = [0.5, 0.7, 0.79, 0.8, 0.81, 0.95, 0.8, 0.79, 0.8, 0.81]
    worth = of_full_length(numbered(values), "max")
    assert (worth.epoch, worth.reported) == (10, 0.81)
    assert (worth.first, worth.last) == (6, 10)
    assert worth.value == pytest.approx(fmean(values[5:]))


def test_of_a_curve_that_still_rises_its_end_counts() -> None:
    worth = of_full_length(numbered([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]), "max")
    assert (worth.value, worth.first, worth.last, worth.error) == (
        pytest.approx(0.85),
        8,
        9,
        pytest.approx(0, abs=1e-15),
    )


def test_where_values_became_worse_the_best_epoch_stands() -> None:
    values = [0.5, 0.7, 0.8, 0.81, 0.8, 0.7, 0.5, 0.3, 0.2]
    worth = of_full_length(numbered(values), "max")
    assert (worth.epoch, worth.reported, worth.first, worth.last) == (4, 0.81, 3, 5)


def test_a_loss_is_worth_the_same_the_other_way_round() -> None:
    values = [0.5, 0.7, 0.79, 0.8, 0.81, 0.95, 0.8, 0.79, 0.8, 0.81]
    up, down = of_full_length(numbered(values), "max"), of_full_length(numbered([-value for value in values]), "min")
    assert (up.epoch, up.first, up.last, up.error) == (down.epoch, down.first, down.last, down.error)
    assert up.value == pytest.approx(-down.value)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_too_few_values_to_tell_noise_are_told_by_their_best(mode: str) -> None:
    values = numbered([0.5, 0.7, 0.6])
    assert of_full_length(values, mode) == of_shortened(values, mode)
    assert of_shortened(values, mode).error is None


def test_of_equal_values_the_earlier_epoch_stands_for_a_shortened_trial() -> None:
    assert of_shortened(numbered([0.5, 0.7, 0.7]), "max") == Worth(2, 0.7, 0.7, None, 2, 2)


def test_values_of_any_size_have_a_worth() -> None:
    huge = of_full_length(numbered([1e308, 1.7e308, 1.6e308, 1.7e308, 1.6e308, 1.7e308]), "max")
    assert math.isfinite(huge.value)
    assert of_full_length(numbered([0.0] * 6), "min").value == 0.0


def test_a_loss_that_falls_by_decades_is_no_noise() -> None:
    worth = of_full_length(numbered([10.0**-epoch for epoch in range(1, 10)]), "min")
    assert (worth.epoch, worth.first, worth.last, worth.error) == (9, 8, 9, 0.0)
    assert worth.value == pytest.approx(10**-8.5)


def test_of_a_loss_that_rises_by_decades_at_its_end_the_best_epoch_stands() -> None:
    worth = of_full_length(numbered([1, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-4, 1e-3]), "min")
    assert (worth.epoch, worth.reported, worth.first, worth.last) == (7, 1e-6, 6, 8)


def test_the_error_of_a_loss_over_decades_is_a_factor() -> None:
    draw = random.Random(3)
    values = [10**-epoch * math.exp(draw.gauss(0, 0.3)) for epoch in range(1, 13)]
    worth = of_full_length(numbered(values), "min")
    assert worth.error is not None
    assert 0.02 < worth.error / worth.value < 0.6


@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_it_is_nearer_to_the_truth_than_the_best_value_and_its_error_is_true(noise: float) -> None:
    """Over 400 curves; the mean of the best value is too high by more than one standard deviation of the noise."""
    draw, off, best, inside = random.Random(5), [], [], 0
    for _ in range(400):
        values = [value + draw.gauss(0, noise) for value in TRUTH]
        worth = of_full_length(numbered(values), "max")
        assert worth.error is not None
        off.append(worth.value - TRUTH[-1])
        best.append(max(values) - TRUTH[-1])
        inside += abs(off[-1]) < 2 * worth.error
    assert abs(fmean(off)) < 0.5 * noise < 0.9 * noise < fmean(best)
    assert inside > 0.8 * 400


def test_a_loss_of_zero_is_zero() -> None:
    values = [(epoch, max(0.0, 1 - epoch / 3)) for epoch in range(1, 10)]
    assert str(of_full_length(values, "min").value) == "0.0"
