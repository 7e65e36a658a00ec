"""The sequence is that of scipy, whether its file of direction numbers is there or not."""

import numpy as np
import pytest
from scipy.stats import qmc

from tuner.search import sobol as module
from tuner.search.sobol import Scipys, Sobol, sobol


@pytest.mark.parametrize("dimensions", [1, 2, 3, 7, 40, 300])
@pytest.mark.parametrize("seed", [0, 5])
def test_its_points_are_scipys_bit_for_bit(dimensions: int, seed: int) -> None:
    found = sobol(dimensions, np.random.default_rng([seed]))
    expected = qmc.Sobol(dimensions, rng=np.random.default_rng([seed]))
    points = np.array([found.point(number) for number in range(64)])
    assert isinstance(found, Sobol)
    assert np.array_equal(points, expected.random(64))
    far = 3**12
    assert np.array_equal(found.point(far), expected.fast_forward(far - 64).random(1)[0])
    assert np.array_equal(found.point(5), points[5])


def test_where_scipy_has_no_such_file_its_class_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sobol(4, np.random.default_rng(3))
    monkeypatch.setattr(module, "DIRECTIONS", "stats/nothing.npz")
    asked = sobol(4, np.random.default_rng(3))
    assert isinstance(asked, Scipys)
    for number in (0, 1, 9, 2):
        assert np.array_equal(found.point(number), asked.point(number))
