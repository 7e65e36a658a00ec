"""Groups of runs in one plot: the mean over seeds, and its standard error as a band."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.plots.base import CATEGORIES, Plot, escaped, label, new_figure
from tuner.plots.progress import AXES

if TYPE_CHECKING:
    from tuner.results.comparison import Comparison

BAND = 0.2  # of a colour


def means(comparison: Comparison) -> Plot:
    """The mean of the best values so far against the epochs trained, a line for each group of runs."""
    table = comparison.over_time
    title = comparison.conclusion
    figure = new_figure(escaped(title[0].upper() + title[1:]), x=AXES["epochs"], y=label(comparison.runs[0].metric))
    for index, name in enumerate(dict.fromkeys(table["group"])):
        rows = table[table["group"] == name]
        colour = CATEGORIES[index % len(CATEGORIES)]
        error = rows["standard error"].fillna(0.0)
        for edge, fill in ((rows["mean"] - error, None), (rows["mean"] + error, "tonexty")):
            figure.add_scatter(
                x=rows["epochs"],
                y=edge,
                fill=fill,
                fillcolor=_faded(colour),
                mode="lines",
                line={"width": 0, "shape": "hv"},
                hoverinfo="skip",
                showlegend=False,
                legendgroup=name,
            )
        figure.add_scatter(
            x=rows["epochs"],
            y=rows["mean"],
            name=escaped(name),
            legendgroup=name,
            mode="lines",
            line={"color": colour, "shape": "hv"},
            customdata=error,
            hovertemplate="%{y:.5g} ± %{customdata:.2g} after %{x} epochs",
        )
    return Plot("comparison against epochs", figure, table)


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND})"
