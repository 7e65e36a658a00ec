"""What all plots share: the figure with its table, colours, axes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Text and grid lines by the page's background; figures are made for a light one, as notebooks usually are
THEMES: dict[str, dict[str, str]] = {
    "light": {"text": "#4f5b69", "grid": "rgba(28,36,48,0.14)"},
    "dark": {"text": "#a5b1bf", "grid": "rgba(228,232,238,0.18)"},
}
# Okabe and Ito's hues, which colour-blind people can distinguish, each 3:1 and more on white and on the dark page;
# stopped trials are pale, so that completed and failed ones stand out
COLOURS = {
    "completed": "#009E73",
    "stopped": "#8A8FA3",
    "paused": "#3E95C9",
    "running": "#0B7BC1",
    "interrupted": "#C46A9B",
    "failed": "#D55E00",
}
SYMBOLS = {"completed": "circle", "stopped": "square", "failed": "x", "interrupted": "diamond", "running": "diamond"}
CATEGORIES = ("#0B7BC1", "#D55E00", "#009E73", "#C46A9B", "#B97F00", "#3E95C9", "#808080")
BEST = "#0B7BC1"
SECOND = "#D55E00"
GREY = "#808080"  # of lines, not of text
SCALE = [[0.0, "#0B7BC1"], [0.5, "#8A7A8F"], [1.0, "#D06000"]]  # of lines and marks, 3:1 all along
SURFACE = "Viridis"  # of areas, whose steps should be visible, not their edges
OUTLINE = {"color": GREY, "width": 1}
FONT = {"family": "system-ui, sans-serif", "size": 13}
HEIGHT = 420  # pixels
TITLE_LINE, TITLE_CHARACTERS = 20, 84  # pixels of a title's line, and characters that fit into a notebook's 700 pixels
TITLE_ROOM = 40  # pixels that go where a page has the title above the figure, and a line for each further one of it
LONGEST_LABEL, LONGEST_OPTION = 28, 16  # characters of a name and of an option next to an axis
BAR = {"thickness": 14}  # pixels, of a colour bar


@dataclass(frozen=True)
class Plot:
    """A figure, and its numbers as a table for those who prefer to read."""

    name: str
    figure: go.Figure
    table: pd.DataFrame
    wide: bool = False  # whether a narrow screen scrolls it

    def _repr_mimebundle_(self, *arguments: Any, **options: Any) -> Any:
        """For notebooks, which show it like its figure."""
        return self.figure._repr_mimebundle_(*arguments, **options)

    def _ipython_display_(self) -> None:
        self.figure._ipython_display_()


def new_figure(title: str, *, x: str = "", y: str = "", **layout: Any) -> go.Figure:
    """An empty figure with a title."""
    import plotly.graph_objects as go

    lines = textwrap.wrap(title, TITLE_CHARACTERS, break_long_words=False, break_on_hyphens=False) or [""]
    more = TITLE_LINE * (len(lines) - 1)
    told = {"text": "<br>".join(lines)} | ({"pad": {"t": more * 0.6}} if more else {})
    # in one call, because plotly checks and copies the whole layout at each later change
    figure = {
        "template": _looks(),
        "title": told,
        "font": {"color": THEMES["light"]["text"]},
        "margin": {"l": 60, "r": 20, "t": 80 + more, "b": 50},
        "height": HEIGHT + more,
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}},
    }
    return go.Figure(layout=figure | layout)


@cache
def _looks() -> go.layout.Template:
    """The style of all figures, including grid lines of the light theme; smaller than plotly's own templates."""
    import plotly.graph_objects as go

    clear, text, grid = "rgba(0,0,0,0)", THEMES["light"]["text"], THEMES["light"]["grid"]
    axis = {
        **{"gridcolor": grid, "linecolor": grid, "zerolinecolor": grid, "zerolinewidth": 2, "ticks": ""},
        **{"automargin": True, "exponentformat": "power", "title": {"standoff": 15}},
    }
    bar = {"colorbar": {"outlinewidth": 0, "ticks": ""}}
    layout = {
        "title": {"font": {"size": 15}, "x": 0.01, "xanchor": "left", "y": 0.98, "yanchor": "top"},
        "font": {**FONT, "color": text},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "colorway": list(CATEGORIES),
        "autotypenumbers": "strict",  # a text option stays text even if it looks like a number
        "hovermode": "closest",
        "hoverlabel": {"namelength": -1, "align": "left"},
        "modebar": {"bgcolor": clear, "color": text},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        "xaxis": axis,
        "yaxis": {**axis, "ticklabelstandoff": 4},
        "coloraxis": bar,
    }
    marks = {
        "bar": [{"error_x": {"color": GREY}, "error_y": {"color": GREY}}],
        **{"heatmap": [bar], "contour": [bar], "parcoords": [{"line": bar}]},
    }
    return go.layout.Template(layout=layout, data=marks)


def nothing(reason: str) -> go.Figure:
    """A figure for a plot that has nothing to show: its title says why."""
    figure = new_figure(escaped(reason))
    return figure.update_xaxes(visible=False).update_yaxes(visible=False).update_layout(height=120)


def escaped(text: str) -> str:
    """Foreign text, escaped because plotly would take `<` and `&` for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def label(text: object, longest: int = LONGEST_LABEL) -> str:
    """A name or an option next to an axis, cut in its middle if it is long."""
    whole = str(text)
    half = (longest - 1) // 2
    return escaped(whole if len(whole) <= longest else f"{whole[:half]}…{whole[-half:]}")


def within(shares: pd.Series[float], errors: pd.Series[float]) -> dict[str, Any]:
    """Error bars of shares, which end at 0 and 1."""
    above, below = errors.clip(upper=1 - shares), errors.clip(upper=shares)
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1.5, "width": 0}


def ids(trials: Iterable[object]) -> list[list[object]]:
    """The trials of the points, as `customdata`: a page finds a trial's marks by its first item."""
    return [[trial] for trial in trials]
