import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.console.charts import chart, sparkline

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("numbers", "drawn"),
    [([], ""), ([0, 0.5, 1], "▁▄█"), ([1, 0.5, 0], "█▄▁"), ([2, -1], "█▁"), (list(range(17)), "▄███")],
)
def test_a_sparkline_has_the_height_of_its_values(numbers: list[float], drawn: str) -> None:
    assert sparkline(numbers, 0, 1 if len(numbers) < 17 else 6, 4) == drawn


def test_values_that_are_all_the_same_are_drawn_in_the_middle() -> None:
    assert sparkline([3, 3], 3, 3, 5) == "▄▄"


def test_a_chart_fills_from_below() -> None:
    assert chart([0, 1, 2], width=10, height=2) == [" ▁█", "▁██"]
    assert chart([], width=10, height=2) == []


@given(values, st.integers(1, 60), st.integers(1, 6))
def test_a_chart_is_as_large_as_asked_for_and_reaches_from_top_to_bottom(
    numbers: list[float], width: int, height: int
) -> None:
    lines = chart(numbers, width, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {min(width, len(numbers))}
    assert " " not in lines[-1]
    if len(numbers) <= width and max(numbers) > min(numbers):
        assert "█" in lines[0]


@given(values, st.integers(1, 60))
def test_the_last_value_is_always_drawn(numbers: list[float], width: int) -> None:
    high, low = max(numbers), min(numbers)
    assert sparkline(numbers, low, high, width)[-1] == sparkline(numbers[-1:], low, high, width)
