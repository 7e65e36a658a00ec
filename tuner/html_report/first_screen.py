"""The first screen: a small history that needs no script, and the winner's configuration to copy."""

from __future__ import annotations

import ast
import json
import math
import pprint
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from tuner.history.records import flat_config
from tuner.plots.marks import in_full
from tuner.plots.value_axes import is_wide
from tuner.results.courses import course_against
from tuner.results.run import RecordedRun
from tuner.results.wording import short
from tuner.text import command, in_utf8

WIDTH, HEIGHT, EDGE = 600.0, 160.0, 8.0  # of the history, in the units of its viewBox
MOST_POINTS = 300
FLAT = 4.0  # values this many times as far from the best as the median are drawn on the edge
HOLLOW = ' class="shorter"'


@dataclass(frozen=True)
class Copy:
    """A text to copy, and the word on its button."""

    label: str
    text: str


def copies(run: RecordedRun) -> list[Copy]:
    """The winner's configuration as Python, as JSON, and as the command with which a search tries it."""
    best = run.best
    if best is None:
        return []
    config = in_utf8(best.config)
    found = [
        Copy("Python", pprint.pformat(config, sort_dicts=False, width=100)),
        Copy("JSON", json.dumps(in_utf8(best.config_in_json), indent=2, ensure_ascii=False)),
    ]
    searched = {name: value for name, value in flat_config(config).items() if name in run.space.dimensions}
    if searched:
        values = [f"{name}={_literal(value)}" for name, value in searched.items()]
        found.append(Copy("command", command("try", run.path, *values)))
    return found


@dataclass(frozen=True)
class History:
    """The small history: an SVG without text, and the values of its upper and lower edge.

    `shorter` says that some trials were not trained in full, `beyond` how many are beyond an edge and drawn on it.
    """

    picture: Markup
    above: str
    below: str
    shorter: bool
    beyond: int


def history(run: RecordedRun) -> History | None:
    """The value of each configuration and the best of those before it; None for fewer than two values."""
    found = sorted(run.record.reported(), key=lambda one: one.trial.configuration)
    if len(found) < 2:
        return None
    full = [in_full(run, one.trial) for one in found]
    values = [one.value for one in found]
    logarithmic = is_wide(values, run.mode)
    drawn = [math.log10(value) for value in values] if logarithmic else values
    led = [value for _, value in course_against(run.record, run.leads, "trials")]
    so_far = [math.log10(value) for value in led] if logarithmic else led
    scale = _Scale(len(drawn), *_edges(drawn, run.mode, logarithmic=logarithmic))
    changes = [index for index in range(1, len(so_far)) if so_far[index] != so_far[index - 1]]
    above, below = (short(10**edge if logarithmic else edge) for edge in (scale.high, scale.low))
    return History(
        _picture(run.metric, scale, drawn, full, so_far, changes),
        above,
        below,
        not all(full),
        sum(not scale.low <= value <= scale.high for value in drawn),
    )


# Inside


@dataclass(frozen=True)
class _Scale:
    """The positions of values in the picture."""

    count: int
    low: float
    high: float

    def x(self, index: int) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * index / max(1, self.count - 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return EDGE + (HEIGHT - 2 * EDGE) * (1 - min(1.0, max(0.0, share)))


def _edges(drawn: list[float], mode: str, *, logarithmic: bool) -> tuple[float, float]:
    """The lowest and highest drawn value; the worst trials are left out if they would make the others look equal."""
    ordered = sorted(drawn, reverse=mode == "max")
    best, middle, worst = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    if not logarithmic and abs(worst - best) > FLAT * abs(middle - best) > 0:
        worst = next(value for value in reversed(ordered) if abs(value - best) <= FLAT * abs(middle - best))
    return min(best, worst), max(best, worst)


def _picture(
    metric: str, scale: _Scale, drawn: list[float], full: list[bool], so_far: list[float], changes: list[int]
) -> Markup:
    """Marks of the trials, hollow for shorter ones, the line of the best, and where it was found."""
    step = max(1, len(drawn) // MOST_POINTS)
    marks = "".join(
        f'<circle cx="{scale.x(i):.1f}" cy="{scale.y(drawn[i]):.1f}" r="2.5"{"" if full[i] else HOLLOW}/>'
        for i in range(0, len(drawn), step)
    )
    line = f"M{scale.x(0):.1f} {scale.y(so_far[0]):.1f}"
    line += "".join(f"H{scale.x(i):.1f}V{scale.y(so_far[i]):.1f}" for i in changes) + f"H{WIDTH - EDGE:.1f}"
    label = escape(f"The best {metric} so far, over {len(drawn)} trials in their order")
    at = changes[-1] if changes else 0
    return Markup(
        f'<svg class="spark" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{label}">'
        f'<g class="trials">{marks}</g><path class="best" d="{line}"/>'
        f'<circle class="winner" cx="{scale.x(at):.1f}" cy="{scale.y(so_far[-1]):.1f}" r="5"/>'
        "</svg>"
    )


def _literal(value: Any) -> str:
    """The value as `tuner try` reads it: text is not quoted, unless it would be read as another value."""
    if not isinstance(value, str):
        return repr(value)
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return value
    return repr(value)
