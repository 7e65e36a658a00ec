"""What a trial may report as the study's metric."""

from __future__ import annotations

from tuner.errors import shown


def flaw_of(metric: str, value: object) -> str | None:
    """What is wrong with a value of the metric, None if it is a number; NaN and infinities are numbers."""
    number = as_python(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return f"the study's metric needs a number, got {metric}={shown(value)}; report a float"
    return None


def as_python(value: object) -> object:
    """A scalar of numpy or torch as Python's own; others as they are."""
    item = getattr(value, "item", None)
    if not callable(item):
        return value
    try:
        return item()
    except (TypeError, ValueError, RuntimeError):  # an array of several numbers
        return value
