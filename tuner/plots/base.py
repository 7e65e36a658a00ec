"""What all plots share: the figure with its table, colours, axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.search.features import is_ordered
from tuner.space import Domain

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Okabe and Ito's colours, which people who see few colours tell apart
COLOURS = {
    "completed": "#009E73",
    "stopped": "#E69F00",
    "paused": "#56B4E9",
    "running": "#0072B2",
    "interrupted": "#999999",
    "failed": "#D55E00",
}
SYMBOLS = {"completed": "circle", "stopped": "square", "failed": "x"}
CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
BEST = "#0072B2"
GREY = "#8A8A8A"
HEIGHT = 420  # pixels


@dataclass(frozen=True)
class Plot:
    """A figure, and the numbers in it as a table for those who would rather read."""

    name: str
    figure: go.Figure
    table: pd.DataFrame


def new_figure(title: str, *, x: str = "", y: str = "", **layout: Any) -> go.Figure:
    """An empty figure that says in its title what is to be seen."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 15}, "x": 0.01, "xanchor": "left", "y": 0.98, "yanchor": "top"},
        template="plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        margin={"l": 60, "r": 20, "t": 80, "b": 50},
        height=HEIGHT,
        hoverlabel={"namelength": -1},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": GREY},
        legend={"orientation": "h", "y": -0.2},
        xaxis_title=x,
        yaxis_title=y,
        **layout,
    )
    return style_axes(figure)


def style_axes(figure: go.Figure) -> go.Figure:
    """Lines that are seen on light and dark pages; for all axes that the figure has by now."""
    grid = {"gridcolor": "rgba(128,128,128,0.2)", "zerolinecolor": "rgba(128,128,128,0.4)", "automargin": True}
    return figure.update_xaxes(**grid).update_yaxes(**grid)


def axis_of(domain: Domain) -> dict[str, Any]:
    """How a hyperparameter's axis is drawn."""
    if not is_ordered(domain):
        return {"type": "category"}
    return {"type": "log", "dtick": 1, "exponentformat": "power"} if is_log(domain) else {"type": "linear"}


def is_log(domain: Domain | None) -> bool:
    """Whether the hyperparameter is searched on a logarithmic scale, and so drawn."""
    return bool(getattr(domain, "log", False))
