"""The chance that a hyperparameter matters most, on functions whose answer is known."""

import numpy as np
import pytest

from tuner.results.leading import Floats, chances_to_lead


def places(count: int = 30, dimensions: int = 3, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).random((count, dimensions))


def chances(units: Floats, values: Floats, options: list[int] | None = None) -> Floats:
    return chances_to_lead(units, options or [1] * units.shape[1], values[None])


def test_one_that_explains_nearly_all_leads() -> None:
    units = places()
    found = chances(units, np.sin(3 * units[:, 1]) + 0.1 * units[:, 0])
    assert found.sum() == pytest.approx(1)
    assert found[1] > 0.9


def test_two_that_explain_as_much_share_the_lead() -> None:
    units = places()
    found = chances(units, units[:, 0] - units[:, 2])
    assert found[1] < 0.05
    assert max(found) < 0.7


def test_where_nothing_was_tried_nothing_is_sure() -> None:
    """All trials lie in a corner of the second dimension: what it does elsewhere nobody knows."""
    units = places()
    values = 0.3 * units[:, 0]
    everywhere = chances(units, values)
    units[:, 1] = 0.05 * units[:, 1]
    assert chances(units, values)[0] < everywhere[0] - 0.1


def test_noise_alone_names_nobody() -> None:
    for seed in range(3):
        units = places(seed=seed)
        assert max(chances(units, np.random.default_rng(seed + 10).standard_normal(30))) < 0.7


def test_options_without_an_order_may_lead() -> None:
    units = places()
    jumps = np.array([0.0, 1.0, -0.5])[(units[:, 0] * 3).astype(int)]
    assert chances(units, jumps + 0.1 * units[:, 1], [3, 1, 1])[0] > 0.9


def test_values_that_are_unsure_make_the_lead_unsure() -> None:
    units = places()
    sure = units[:, 0] + 0.6 * units[:, 1]
    unsure = sure + np.random.default_rng(0).standard_normal((40, 30)) * 0.5
    assert chances_to_lead(units, [1, 1, 1], unsure)[0] < chances(units, sure)[0]


def test_it_is_the_same_again_in_whatever_unit_values_are() -> None:
    units = places(150)  # more than the process takes
    values = units[:, 0] + 0.5 * units[:, 1]
    assert (chances(units, values) == chances(units, values)).all()
    assert chances(units, 1e-6 * values + 3) == pytest.approx(chances(units, values), abs=0.05)
