"""The parts of pages: tables, figures, scripts and packed data, and the templates for them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from html import unescape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tuner.html_report.still import Still, still
from tuner.plots import Plot
from tuner.plots.figure import COLOURS, FONT, THEMES, TITLE_LINE, TITLE_ROOM, new_figure
from tuner.results.importance import FEWEST_TRIALS
from tuner.results.wording import duration, hours, outcome, plural, short, with_error
from tuner.text import in_one_direction

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment, Template

MOST_ROWS = 200  # of a figure's table; complete tables are history.csv and trials.csv
STILL = ("learning curves",)  # figures that are also drawn without a script; the history is on the first screen
SHARED = ("elements", "figure_looks", "figure_trials", "trial_parts")  # modules that a service's pages import
SCRIPTS = ("unpacking", "figures", "tables", "trials", "explorer", "start")
# Before anything is shown: figures replace tables if the browser can unpack and draw them.
FIRST_SCRIPT = Markup(
    'if ("DecompressionStream" in window && "IntersectionObserver" in window) '
    'document.documentElement.classList.add("drawn", "resting")'
)
LIT = {"light": "#C2185B", "dark": "#FF7AB2"}  # of the selected trial; different from all colours of the figures
CURVES = {"light": ["#0072B2", "#B45309"], "dark": ["#56B4E9", "#E69F00"]}
LOOKS = {name: {**colours, "lit": LIT[name], "curves": CURVES[name]} for name, colours in THEMES.items()}
# With it Chromium parses plotly's modules only once, not again when each is run; others see a comment.
COMPILED_AT_ONCE = "//# allFunctionsCalledOnLoad\n"


@dataclass(frozen=True)
class Table:
    """Rows of cells as text, and what is left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


@dataclass(frozen=True)
class Figure:
    """A plot for the page: its title as text, plotly's JSON packed, its numbers; `wide` ones may scroll.

    `still` is shown with the numbers if no script runs.
    """

    name: str
    title: str
    height: int
    packed: Markup
    table: Table
    wide: bool
    still: Still | None


def render(template: str, **content: Any) -> str:
    """A page from its template: HTML that needs no other file and no network."""
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page: str = compiled(template).render(written=written, plotly=packed_plotly, **content)
    return page


def compiled(template: str) -> Template:
    """A page's template, which is read and compiled once."""
    return _environment().get_template(template)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("tuner.html_report", "assets")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        finalize=in_one_direction,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def source(name: str) -> str:
        return loader.get_source(environment, name)[0]

    shared = [_as_script(source(f"shared/{name}.js")) for name in SHARED]
    scripts = "\n".join([*shared, *(source(f"scripts/{name}.js") for name in SCRIPTS)])
    script = Markup('\n"use strict";\n{\n' + scripts + "\n}\n")
    environment.filters |= {
        "typed": typed,
        "short": short,
        "duration": duration,
        "outcome": outcome,
        "hours": hours,
        "with_error": with_error,
        "capitalised": lambda text: text[:1].upper() + text[1:],
    }
    environment.globals |= {"plural": plural, "style": Markup(source("style.css")), "script": script}
    environment.globals |= {"first_script": FIRST_SCRIPT, "policy": policy(FIRST_SCRIPT, script)}
    environment.globals |= {"looks": in_script({"themes": LOOKS, "statuses": COLOURS, "font": FONT})}
    return environment


def _as_script(module: str) -> str:
    """A module of functions as a part of the page's one script."""
    return re.sub(r"^import .*\n|^export ", "", module, flags=re.MULTILINE)


def typed(text: str) -> Markup:
    """A command that may be broken between words, and within a word only if that is longer than the line."""
    return Markup(" ").join(Markup("<span>{}</span>").format(word) for word in text.split(" "))


def in_script(data: Any) -> Markup:
    """Plain data as JSON that no text in it can end the script element of."""
    return Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"))


def figures_of(plots: Iterable[Plot | None]) -> list[Figure]:
    """Plots for a page, without those that have nothing to show."""
    return [_figure(plot) for plot in plots if plot is not None]


def _figure(plot: Plot) -> Figure:
    figure, lines = plot.figure, plot.figure.layout.title.text.split("<br>")
    title, room = unescape(" ".join(lines)), TITLE_ROOM + TITLE_LINE * (len(lines) - 1)
    height = int(figure.layout.height) - room
    figure.update_layout(title=None, height=height, margin={"t": figure.layout.margin.t - room})
    name = plot.name.replace(" ", "-")
    picture = still(figure, title) if plot.name in STILL else None
    return Figure(name, title, height, packed(figure.to_json()), table_of(plot.table), plot.wide, picture)


def table_of(table: pd.DataFrame, most: int = MOST_ROWS) -> Table:
    """A table for a page, with its first `most` rows."""
    shown = table.head(most)
    rows = [tuple(cell(value) for value in row) for row in shown.itertuples(index=False, name=None)]
    return Table(tuple(map(str, table.columns)), tuple(rows), len(table) - len(shown))


def cell(value: Any) -> str:
    """A value as text; empty if there is none."""
    missing = value is None or value != value or str(value) == "<NA>"  # noqa: PLR0124 -- NaN
    return "" if missing else short(value)


def packed(text: str) -> Markup:
    """The text as gzip in base85, which the page unpacks by `DecompressionStream`; `,` replaces `<`."""
    written = base64.b85encode(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    return Markup(written.replace(b"<", b",").decode("ascii"))


@cache
def packed_plotly() -> Markup:
    """The script that the page runs of the installed plotly."""
    return packed(_plotly())


@cache
def policy(*scripts: str) -> Markup:
    """A Content-Security-Policy for a page that loads nothing, and only runs these scripts and plotly's.

    Plotly compiles code to draw parallel coordinates, which needs `unsafe-eval`; it styles its elements.
    """
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (*scripts, _plotly()))
    return Markup(
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return COMPILED_AT_ONCE + script


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def load(trials: int) -> None:
    """For a run of so many trials: import the libraries, compile the page's template and pack plotly's script.

    These are two seconds of a processor, and two more where importances are shown.
    """
    import plotly.subplots

    if trials >= FEWEST_TRIALS:
        import sklearn.ensemble  # noqa: F401
    packed_plotly()
    compiled("run.html")
    figure = plotly.subplots.make_subplots(figure=new_figure(""))
    figure.add_scatter(y=[0.0], error_y={"array": [1.0]}).add_bar(y=[0.0]).add_hline(0.0).add_heatmap(z=[[0.0]])
    figure.add_contour(z=[[0.0]]).add_parcoords(dimensions=[{"values": [0.0]}])
    figure.to_json()
