import numpy as np
import pytest

from tuner.search.points import Features
from tuner.space import Space, choice, uniform

SPACE = Space(
    {
        "lr": uniform(0, 1),
        "size": choice([32, 64, 128]),
        "kind": choice(["a", "b", "c"]),
        "momentum": uniform(0, 1).when(kind="b"),
    }
)


def distance(one: dict[str, object], other: dict[str, object]) -> float:
    points = Features(SPACE).points(np.array([SPACE.encode(one), SPACE.encode(other)]))
    return float(np.linalg.norm(points[0] - points[1]))


def test_numbers_are_as_far_apart_as_they_are_and_any_two_options_are_one_apart() -> None:
    base = {"lr": 0.25, "size": 32, "kind": "a"}
    assert distance(base, base) == 0
    assert distance(base, {**base, "lr": 0.75}) == pytest.approx(0.5)
    assert distance(base, {**base, "size": 64}) < distance(base, {**base, "size": 128})
    assert distance(base, {**base, "kind": "c"}) == pytest.approx(1)


def test_what_is_no_part_of_a_configuration_stands_in_its_middle() -> None:
    base = {"lr": 0.25, "size": 32, "kind": "a"}
    assert distance(base, {**base, "kind": "b", "momentum": 0.5}) == pytest.approx(1)
    assert distance(base, {**base, "kind": "b", "momentum": 1.0}) == pytest.approx((1 + 0.25) ** 0.5)


def test_a_space_without_dimensions_has_points_without_columns() -> None:
    assert Features(Space({"a": 1})).points(np.zeros((2, 0))).shape == (2, 0)
