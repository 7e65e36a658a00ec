"""Curves drawn with characters."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
LEVELS = len(BLOCKS) - 1


def sparkline(values: Sequence[float], low: float, high: float, width: int) -> str:
    """Values in a line of at most `width` characters, each the height of its value between `low` and `high`."""
    return "".join(BLOCKS[max(1, round(LEVELS * height))] for height in _heights(_resampled(values, width), low, high))


def chart(values: Sequence[float], width: int, height: int) -> list[str]:
    """Values as an area of `height` lines of `width` characters, from the lowest value to the highest.

    The lowest is drawn one level high, so that the area shows how far it goes.
    """
    if not values:
        return []
    drawn = _resampled(values, width)
    levels = [1 + round((LEVELS * height - 1) * part) for part in _heights(drawn, min(values), max(values))]
    return [
        "".join(BLOCKS[min(LEVELS, max(0, level - LEVELS * row))] for level in levels)
        for row in range(height - 1, -1, -1)
    ]


def _heights(values: Sequence[float], low: float, high: float) -> list[float]:
    """The positions of values between `low` (0) and `high` (1); in the middle if those are the same."""
    if high <= low:
        return [0.5] * len(values)
    return [min(1.0, max(0.0, (value - low) / (high - low))) for value in values]


def _resampled(values: Sequence[float], width: int) -> list[float]:
    """As many values as fit, evenly selected, including the last."""
    if len(values) <= width:
        return list(values)
    return [values[(index + 1) * len(values) // width - 1] for index in range(width)]
