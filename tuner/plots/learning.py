"""Learning curves as plain data for plotly, made without plotly: for reports, notebooks and a service's pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.plots.figure import COLOURS, GREY, ids, label
from tuner.plots.value_axes import is_wide

BANDS = ((10, 90, 0.14), (25, 75, 0.22))  # percentiles, and opacity
QUANTILES = tuple(sorted({50, *(share for low, high, _ in BANDS for share in (low, high))}))
MOST_TICKS = 20
MARGIN_X, MARGIN_Y = 0.03, 0.06  # shares of an axis, so that marks at its ends are complete

Points = Sequence[tuple[int, float]]  # epoch, value
Trace = dict[str, Any]


@dataclass(frozen=True)
class OneCurve:
    """A trial's metric by epoch."""

    trial: str
    status: str
    points: Points


@dataclass(frozen=True)
class Quantiles:
    """For each epoch, over the trials with a value there: their number, and percentiles by their share."""

    epochs: list[int]
    counts: list[int]
    shares: Mapping[int, list[float]]


def quantiles_of(curves: Sequence[Points]) -> Quantiles:
    """Quantiles of the curves, at each epoch over those that reached it."""
    at: dict[int, list[float]] = {}
    for curve in curves:
        for epoch, value in curve:
            at.setdefault(epoch, []).append(value)
    epochs = sorted(at)
    found = np.array([np.percentile(at[epoch], QUANTILES) for epoch in epochs])
    shares = {share: found[:, place].tolist() for place, share in enumerate(QUANTILES)}
    return Quantiles(epochs, [len(at[epoch]) for epoch in epochs], shares)


def learning_traces(shown: Sequence[OneCurve], best: str | None, others: Quantiles | None = None) -> list[Trace]:
    """The curves, the first ones drawn over the others; if not all are shown, above the quantiles of all."""
    lines = [_line(curve, is_best=curve.trial == best) for curve in reversed(shown)]
    told: set[str] = set()
    for line in lines:
        line["showlegend"] = line["legendgroup"] not in told
        told.add(line["legendgroup"])
    return [*([] if others is None else _bands(others)), *lines]


def rung_shapes(rungs: Sequence[int]) -> list[dict[str, Any]]:
    """Lines where early stopping compares trials."""
    line = {"color": GREY, "dash": "dot", "width": 1}
    return [
        {"type": "line", "x0": rung, "x1": rung, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain", "line": line}
        for rung in rungs
    ]


def live_layout(
    metric: str, mode: str, rungs: Sequence[int], longest: int, shown: Sequence[OneCurve], others: Quantiles | None
) -> dict[str, Any]:
    """Axes that stay the same while trials run, and the rungs; colours of text and grid are the page's."""
    margin = max(1, longest - 1) * MARGIN_X
    x: dict[str, Any] = {"title": {"text": "epoch"}, "range": [1 - margin, longest + margin]}
    if longest <= MOST_TICKS:
        x["dtick"] = 1
    y = {"title": {"text": label(metric)}, **_value_axis(mode, shown, others)}
    return {"xaxis": x, "yaxis": y, "shapes": rung_shapes(rungs)}


# Inside


def _line(curve: OneCurve, *, is_best: bool) -> Trace:
    return {
        "type": "scatter",
        **points_of(curve.trial, curve.points),
        "name": curve.status,
        "legendgroup": curve.status,
        "line": {"color": COLOURS.get(curve.status, GREY), "width": 4 if is_best else 1.2},
    }


def points_of(trial: str, points: Points) -> Trace:
    """A curve's points, marked with their trial so that a page finds them."""
    return {
        "x": [epoch for epoch, _ in points],
        "y": [value for _, value in points],
        "customdata": ids([trial] * len(points)),
        "mode": "lines+markers" if len(points) == 1 else "lines",
        "hovertemplate": "trial %{customdata[0]}, epoch %{x}: %{y:.5g}<extra></extra>",
    }


def _bands(found: Quantiles) -> list[Trace]:
    epochs, shares = found.epochs, found.shares
    areas = [
        {
            "type": "scatter",
            "x": [*epochs, *reversed(epochs)],
            "y": [*shares[high], *reversed(shares[low])],
            "name": f"{low} to {high} % of trials",
            "mode": "lines",
            "fill": "toself",
            "fillcolor": f"rgba(128,128,128,{opacity})",
            "line": {"color": GREY, "width": 1},
            "hoverinfo": "skip",
        }
        for low, high, opacity in BANDS
    ]
    median = {
        "type": "scatter",
        "x": epochs,
        "y": shares[50],
        "name": "median of trials",
        "mode": "lines",
        "line": {"color": GREY, "width": 3, "dash": "dash"},
        "hovertemplate": "median after epoch %{x}: %{y:.5g}<extra></extra>",
    }
    return [*areas, median]


def _value_axis(mode: str, shown: Sequence[OneCurve], others: Quantiles | None) -> dict[str, Any]:
    """Logarithmic if the values need it. A failed trial, whose loss may be 1e30, doesn't affect the axis."""
    sound = [curve for curve in shown if curve.status != "failed"] or list(shown)
    values = [value for curve in sound for _, value in curve.points]
    wide = is_wide(values, mode)
    kind = {"type": "log", "nticks": 8} if wide else {"type": "linear"}
    if len(sound) == len(shown):
        return {**kind, "autorange": True}
    values += [] if others is None else [*others.shares[25], *others.shares[75]]
    ends = (min(values), max(values))
    low, high = (math.log10(end) for end in ends) if wide else ends
    margin = (high - low or abs(high) or 1.0) * MARGIN_Y
    return {**kind, "range": [low - margin, high + margin]}
