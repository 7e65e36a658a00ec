"""What stands first: a small history that needs no script, the winner's configuration to copy."""

from __future__ import annotations

import ast
import json
import math
import pprint
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from tuner.foreign_text import in_utf8
from tuner.history.records import flat_config
from tuner.quoting import command

if TYPE_CHECKING:
    from tuner.results.run import Run

WIDTH, HEIGHT, EDGE = 600.0, 120.0, 8.0  # of the history, in the units of its viewBox
MOST_POINTS = 300
DECADES = 2.0  # of positive values from which on their logarithms are drawn
SHOWN_SHARE = 0.75  # of the trials; the worst ones would press the others into a line, and lie on the border


@dataclass(frozen=True)
class Copy:
    """A text to copy, and the word on its button."""

    label: str
    text: str


def copies(run: Run) -> list[Copy]:
    """The winner's configuration as Python, as JSON, and as the command that has a search try it."""
    best = run.best
    if best is None:
        return []
    config = in_utf8(best.config)
    found = [
        Copy("Python", pprint.pformat(config, sort_dicts=False, width=100)),
        Copy("JSON", json.dumps(config, indent=2, ensure_ascii=False)),
    ]
    searched = {name: value for name, value in flat_config(config).items() if name in run.space.dimensions}
    if searched:
        values = [f"{name}={_literal(value)}" for name, value in searched.items()]
        found.append(Copy("command", command("try", run.path, *values)))
    return found


def sparkline(run: Run) -> Markup | None:
    """What each trial comes to and the best so far, as SVG; None for fewer than two values."""
    values = [best[1] for best in map(run.record.best_of, _counting(run)) if best is not None]
    if len(values) < 2:
        return None
    drawn = [math.log10(value) for value in values] if _spans_decades(values) else values
    better = max if run.mode == "max" else min
    so_far = [drawn[0]]
    for value in drawn[1:]:
        so_far.append(better(so_far[-1], value))
    ordered = sorted(drawn, reverse=run.mode == "max")
    ends = (ordered[0], ordered[int(SHOWN_SHARE * (len(ordered) - 1))], so_far[0])
    scale = _Scale(len(drawn), min(ends), max(ends))
    step = max(1, len(drawn) // MOST_POINTS)
    points = "".join(
        f'<circle cx="{scale.x(i):.1f}" cy="{scale.y(drawn[i]):.1f}" r="2.5"/>' for i in range(0, len(drawn), step)
    )
    changes = [i for i in range(1, len(so_far)) if so_far[i] != so_far[i - 1]]
    line = f"M{scale.x(0):.1f} {scale.y(so_far[0]):.1f}"
    line += "".join(f"H{scale.x(i):.1f}V{scale.y(so_far[i]):.1f}" for i in changes) + f"H{WIDTH - EDGE:.1f}"
    label = escape(f"The best {run.metric} so far, over {len(values)} trials in their order")
    at = changes[-1] if changes else 0
    return Markup(
        f'<svg class="spark" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{label}">'
        f'<g class="trials">{points}</g><path class="best" d="{line}"/>'
        f'<circle class="winner" cx="{scale.x(at):.1f}" cy="{scale.y(so_far[-1]):.1f}" r="5"/>'
        "</svg>"
    )


# Inside


@dataclass(frozen=True)
class _Scale:
    """Where values stand in the picture."""

    count: int
    low: float
    high: float

    def x(self, index: int) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * index / max(1, self.count - 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return EDGE + (HEIGHT - 2 * EDGE) * (1 - min(1.0, max(0.0, share)))


def _counting(run: Run) -> list[str]:
    return [trial.trial for trial in run.record.trials.values() if trial.status != "failed"]


def _spans_decades(values: list[float]) -> bool:
    return min(values) > 0 and math.log10(max(values)) - math.log10(min(values)) > DECADES


def _literal(value: Any) -> str:
    """The value as `tuner try` reads it: text as it is, unless it would be taken for another value."""
    if not isinstance(value, str):
        return repr(value)
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return value
    return repr(value)
