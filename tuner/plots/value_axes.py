"""Axes and colours of a metric's values: logarithmic if the data needs it, with a switch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.plots.figure import GREY

if TYPE_CHECKING:
    import plotly.graph_objects as go

Floats = npt.NDArray[np.float64]
DECADES = 2.0  # positive values that span more are drawn on a logarithmic axis
SWITCHED_FROM = 1.0  # decades from which an axis can be switched


def decades(values: Iterable[float]) -> float:
    """How many powers of ten finite, positive values span; 0 where one is not positive."""
    found = np.asarray(list(values), dtype=float)
    found = found[np.isfinite(found)]
    if not len(found) or found.min() <= 0:
        return 0.0
    return float(math.log10(found.max()) - math.log10(found.min()))


def is_wide(values: Iterable[float], mode: str) -> bool:
    """Whether a metric is drawn on a logarithmic scale: positive values over more than two decades.

    False for a metric to maximise that stays below 1, such as an accuracy, whose good values are close together.
    """
    found = [value for value in values if math.isfinite(value)]
    return decades(found) > DECADES and not (mode == "max" and max(found) <= 1)


def draw_values(
    figure: go.Figure, values: Iterable[float], mode: str, axis: str = "yaxis", *, headings: bool = False
) -> go.Figure:
    """Set a metric's axis, and all that match it, by its values; with a switch if they span a decade or more.

    If subplots have `headings`, the switch is above them.
    """
    found = list(values)
    wide = is_wide(found, mode)
    names = [name for name in figure.to_dict()["layout"] if name.startswith(axis)] or [axis]
    if wide:
        figure.update_layout({name: _log_axis() for name in names})
    if decades(found) >= SWITCHED_FROM:
        figure.update_layout(updatemenus=[_switch(names, wide, above=30 if headings else 8)])
    return figure


def _log_axis() -> dict[str, Any]:
    return {"type": "log", "exponentformat": "power", "minor": {"showgrid": False}, "nticks": 8}


def _switch(axes: list[str], wide: bool, above: int) -> dict[str, Any]:
    """Two buttons above the figure."""
    kinds = ("log", "linear")
    buttons = [
        {"label": kind, "method": "relayout", "args": [{f"{name}.{k}": v for name in axes for k, v in _set(kind)}]}
        for kind in kinds
    ]
    return {
        "type": "buttons",
        "direction": "right",
        "active": 0 if wide else 1,
        "buttons": buttons,
        "x": 1,
        "xanchor": "right",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": above, "t": 0},
        "bgcolor": "rgba(128,128,128,0.12)",
        "bordercolor": GREY,
        "font": {"size": 12},
    }


def _set(kind: str) -> list[tuple[str, Any]]:
    return [("type", kind), ("exponentformat", "power" if kind == "log" else "B"), ("autorange", True)]


def colours_of(values: Floats, mode: str) -> tuple[Floats, dict[str, Any]]:
    """Numbers for colours, and a colour bar's ticks: decimal logarithms labelled with the values."""
    if not is_wide(values.tolist(), mode):
        return values, {}
    logs = np.log10(values)
    ticks = log_ticks(float(logs.min()), float(logs.max()))
    return logs, {"tickvals": ticks, "ticktext": [written(10**tick) for tick in ticks]}


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Ticks at whole powers of ten between two decimal logarithms; evenly spaced if there are too few."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if last - first < 1:
        return [float(tick) for tick in np.linspace(low, high, 4)]
    step = -(-(last - first) // (most - 1))
    return [float(tick) for tick in range(first, last + 1, step)]


def written(value: float) -> str:
    """A number in few characters: 0.001, 1e-05, 5e+07 as 5e7."""
    text = f"{value:.3g}"
    if "e" not in text:
        return text
    digits, _, exponent = text.partition("e")
    return f"{digits}e{int(exponent)}"
