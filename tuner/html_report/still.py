"""A figure of curves as a still picture, for pages without scripts: an SVG, and the text around it.

The picture has no text, which would be too small on a phone, and is stretched to the width that it gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from tuner.plots.value_axes import written

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH, HEIGHT, EDGE = 1000, 400, 12  # in the units of its viewBox
MOST_POINTS = 40  # points of a curve
DOT = 6  # size of a curve with one point

Range = tuple[float, float]


@dataclass(frozen=True)
class Still:
    """The picture, the values of its upper and lower edge, its axes in words, and the lines' colours by name."""

    picture: Markup
    above: str
    below: str
    axes: str
    colours: dict[str, str]


def still(figure: go.Figure, title: str) -> Still:
    """The curves of a figure as it would draw them; `title` is for screen readers."""
    logarithmic = figure.layout.yaxis.type == "log"
    lines = [(trace, _points(trace, logarithmic=logarithmic)) for trace in figure.data]
    xs, ys = zip(*(point for _, points in lines for point in points), strict=True)
    wide, high = (min(xs), max(xs)), (min(ys), max(ys))
    below, above = (written(10**end if logarithmic else end) for end in high)
    kind = " on a logarithmic scale" if logarithmic else ""
    axes = f"{figure.layout.yaxis.title.text}{kind}, after {figure.layout.xaxis.title.text} {wide[0]:g} to {wide[1]:g}"
    rungs = "".join(_rung(shape, wide) for shape in figure.layout.shapes)
    drawn = "".join(_line(trace, points, wide, high) for trace, points in lines)
    axes = Markup(axes).unescape()
    picture = Markup(
        f'<svg class="still" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="still-title still-desc"><title id="still-title">{escape(title)}</title>'
        f'<desc id="still-desc">{escape(axes)}; from {below} to {above}</desc>{rungs}{drawn}</svg>'
    )
    colours = {trace.name: trace.line.color for trace, _ in lines if not trace.fill}
    return Still(picture, above, below, axes, colours)


# Inside


def _points(trace: Any, *, logarithmic: bool) -> list[tuple[float, float]]:
    pairs = list(zip(trace.x, trace.y, strict=True))
    step = 1 if trace.fill else math.ceil(len(pairs) / MOST_POINTS)
    kept = [*pairs[:-1:step], *pairs[-1:]]
    return [(float(x), math.log10(y) if logarithmic else float(y)) for x, y in kept]


def _line(trace: Any, points: list[tuple[float, float]], wide: Range, high: Range) -> str:
    """A path in whole steps from point to point, which keeps its text short."""
    places = [(_place(x, wide, WIDTH), HEIGHT - _place(y, high, HEIGHT)) for x, y in points]
    steps = "".join(f"l{b[0] - a[0]} {b[1] - a[1]}" for a, b in pairwise(places)).replace(" -", "-")
    path = f"M{places[0][0]} {places[0][1]}{steps or 'h0'}"
    if trace.fill:
        return f'<path d="{path}z" fill="{trace.fillcolor}" stroke="none"/>'
    dash = ' stroke-dasharray="6 4"' if trace.line.dash else ""
    return f'<path d="{path}" stroke="{trace.line.color}" stroke-width="{trace.line.width if steps else DOT:g}"{dash}/>'


def _rung(shape: Any, wide: Range) -> str:
    return f'<path class="rung" d="M{_place(shape.x0, wide, WIDTH)} 0V{HEIGHT}"/>'


def _place(value: float, ends: Range, length: int) -> int:
    share = (value - ends[0]) / ((ends[1] - ends[0]) or 1.0)
    return round(EDGE + share * (length - 2 * EDGE))
