"""What the times of epochs say of a machine's pace."""

import numpy as np
import pytest

from tuner.history.drift import USUAL, pace_change

Trial = list[tuple[float, float]]


def trial(begun: float, lengths: list[float]) -> Trial:
    """(end, seconds) of epochs that follow each other."""
    return list(zip((begun + np.cumsum(lengths)).tolist(), lengths, strict=True))


def change(*trials: Trial) -> float:
    found = pace_change(trials, max(at for each in trials for at, _ in each))
    assert found is not None
    return found


def lengths(count: int, generator: np.random.Generator, noise: float = 0.05) -> list[float]:
    return np.exp(noise * generator.standard_normal(count)).tolist()


def test_nothing_is_known_before_two_epochs_in_a_row() -> None:
    assert pace_change([], 10.0) is None
    assert pace_change([[(1.0, 1.0)], [(2.0, 1.0)], []], 10.0) is None
    assert pace_change([[(1.0, 1.0), (1.0, 0.0)]], 10.0) is None
    assert pace_change([trial(0.0, [1.0, 1.0])], 0.0) is None


def test_a_machine_of_its_own_keeps_its_pace_whatever_trials_take() -> None:
    generator = np.random.default_rng(0)
    levels = np.exp(0.4 * generator.standard_normal(12))
    one_after_another = [
        trial(10.0 * k, [level * each for each in lengths(9, generator)]) for k, level in enumerate(levels)
    ]
    assert change(*one_after_another) < 0.08


def test_the_more_is_seen_of_a_steady_machine_the_less_it_is_expected_to_change() -> None:
    generator = np.random.default_rng(0)
    trials = [trial(9.0 * k, lengths(9, generator)) for k in range(12)]
    assert change(*trials) < change(*trials[:2]) < change(trials[0]) < USUAL


def test_trials_that_are_slow_at_the_same_time_show_a_change() -> None:
    """Each of them takes twice as long in its second half."""
    generator = np.random.default_rng(1)
    slower = [1.0] * 6 + [2.0] * 6
    together = [trial(0.0, list(np.multiply(slower, lengths(12, generator)))) for _ in range(4)]
    assert change(*together) > 0.3
    assert change(*together) > 2 * change(*[trial(0.0, lengths(12, generator)) for _ in range(4)])


def test_short_trials_one_after_another_show_a_change_if_they_take_alike_otherwise() -> None:
    generator = np.random.default_rng(2)
    slowing = np.linspace(1.0, 2.0, 16)
    trials = [trial(5.0 * k, [pace * each for each in lengths(3, generator, 0.02)]) for k, pace in enumerate(slowing)]
    mixed = [
        trial(5.0 * k, [pace * each for each in lengths(3, generator, 0.02)])
        for k, pace in enumerate(generator.permutation(slowing))
    ]
    assert change(*trials) > 1.5 * change(*mixed)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_it_is_the_same_in_any_unit_of_time(unit: float) -> None:
    generator = np.random.default_rng(3)
    trials = [trial(12.0 * k, lengths(9, generator, 0.3)) for k in range(4)]
    scaled = [[(unit * at, unit * took) for at, took in each] for each in trials]
    assert change(*scaled) == pytest.approx(change(*trials))
