"""What pages are made of: tables, figures, and the templates that they are put into."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tuner.plots import Plot
from tuner.results.text import duration, hours, outcome, plural, short

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment

MOST_ROWS = 200  # of a figure's table; the whole ones are history.csv and trials.csv
NARROW_HEIGHT = 40  # pixels that a figure's own title took, which stands above it here
WIDE = ("parallel coordinates", "slices", "confusion matrix")


@dataclass(frozen=True)
class Table:
    """Cells as text, rows of them, and what is left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


@dataclass(frozen=True)
class Figure:
    """A plot for the page: its title as text, plotly's JSON, its numbers; `wide` ones scroll on a narrow screen."""

    name: str
    title: str
    height: int
    json: Markup
    table: Table
    wide: bool


def render(template: str, **content: Any) -> str:
    """A page from its template: HTML that needs no other file and no network."""
    from plotly.offline import get_plotlyjs

    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page: str = _environment().get_template(template).render(written=written, plotly=Markup(get_plotlyjs()), **content)
    return page


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("tuner.html_report", "assets")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"short": short, "duration": duration, "outcome": outcome, "hours": hours}
    environment.globals |= {"plural": plural}
    for name in ("style.css", "script.js"):
        environment.globals[name.partition(".")[0]] = Markup(loader.get_source(environment, name)[0])
    return environment


def figures_of(plots: Iterable[Plot | None]) -> list[Figure]:
    """Plots for a page, but for those that have nothing to show."""
    return [_figure(plot) for plot in plots if plot is not None]


def _figure(plot: Plot) -> Figure:
    figure, title = plot.figure, html.unescape(plot.figure.layout.title.text)
    height = int(figure.layout.height) - NARROW_HEIGHT
    figure.update_layout(title=None, height=height, margin={"t": figure.layout.margin.t - NARROW_HEIGHT})
    json = Markup(figure.to_json().replace("<", "\\u003c"))  # so that no text in it ends the script element
    return Figure(plot.name.replace(" ", "-"), title, height, json, table_of(plot.table), plot.name in WIDE)


def table_of(table: pd.DataFrame, most: int = MOST_ROWS) -> Table:
    """A table for a page, with its first `most` rows."""
    shown = table.head(most)
    rows = [tuple(cell(value) for value in row) for row in shown.itertuples(index=False, name=None)]
    return Table(tuple(map(str, table.columns)), tuple(rows), len(table) - len(shown))


def cell(value: Any) -> str:
    """A value as text; nothing where there is none."""
    missing = value is None or value != value or str(value) == "<NA>"  # noqa: PLR0124 -- NaN
    return "" if missing else short(value)
