"""Points of two objectives: their fronts, their order, and the area that they dominate, against slow definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.space.pareto import Floats, fronts, hypervolume, knee, order

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=25)


def peeled(points: Floats) -> list[int]:
    """Fronts by their definition: peel off what none of those left beats; of equal points the first is better."""
    found, left, front = [-1] * len(points), set(range(len(points))), 0
    while left:
        beaten = {
            one
            for one in left
            for other in left - {one}
            if (points[other] >= points[one]).all() and ((points[other] > points[one]).any() or other < one)
        }
        for one in left - beaten:
            found[one] = front
        left, front = beaten, front + 1
    return found


@given(POINTS)
def test_fronts_are_what_is_left_when_better_ones_are_peeled_off(drawn: list[tuple[int, int]]) -> None:
    points = np.array(drawn, dtype=float)
    assert fronts(points).tolist() == peeled(points)


@given(POINTS)
def test_the_order_goes_front_by_front_and_begins_with_the_best_in_the_first(drawn: list[tuple[int, int]]) -> None:
    points = np.array(drawn, dtype=float)
    places, of = order(points), fronts(points)
    assert sorted(places) == list(range(len(points)))
    assert of[places].tolist() == sorted(of.tolist())
    assert points[places[0], 0] == points[:, 0].max()


def test_the_first_few_of_a_front_are_spread_over_it() -> None:
    line = np.array([(x, 10 - x) for x in range(11)], dtype=float)
    assert [line[place, 0] for place in order(line)[:3]] == [10, 0, 5]
    stretched = line * [1, 1000]
    assert order(stretched) == order(line)  # whatever units they have
    assert order(np.empty((0, 2))) == []


@given(POINTS)
def test_the_area_is_that_of_the_cells_below_any_point(drawn: list[tuple[int, int]]) -> None:
    cells = sum(any(x > a and y > b for x, y in drawn) for a in range(1, 7) for b in range(1, 7))
    assert hypervolume(np.array(drawn, dtype=float), (1, 1)) == pytest.approx(cells)


def test_the_knee_is_farthest_above_the_line_between_the_ends() -> None:
    assert knee(np.array([[0.0, 10.0], [0.8, 9.0], [1.0, 0.0]])) == 1
    assert knee(np.array([[0.0, 10.0], [1.0, 0.0]])) == 1  # the best in the first objective
    assert knee(np.array([[0.0, 10.0], [0.3, 2.0], [1.0, 0.0]])) == 2  # below the line
    assert knee(np.array([[3.0, 3.0]])) == 0
