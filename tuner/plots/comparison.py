"""Several runs in one plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.plots.base import CATEGORIES, Plot, new_figure
from tuner.plots.progress import AXES, Against, optimisation_history

if TYPE_CHECKING:
    from tuner.results.comparison import Comparison


def best_values(comparison: Comparison, against: Against = "epochs") -> Plot:
    """The best value so far of every run on the same axes."""
    import pandas as pd

    title = comparison.conclusion if against == "epochs" else f"the best so far against {AXES[against]}"
    figure = new_figure(title[0].upper() + title[1:], x=AXES[against], y=comparison.runs[0].metric)
    tables = []
    for index, (name, run) in enumerate(zip(comparison.names, comparison.runs, strict=True)):
        table = optimisation_history(run, against).table
        colour = CATEGORIES[index % len(CATEGORIES)]
        figure.add_scatter(
            x=table[against], y=table["best so far"], name=name, mode="lines", line={"shape": "hv", "color": colour}
        )
        tables.append(table.assign(run=name))
    return Plot(f"comparison against {against}", figure, pd.concat(tables, ignore_index=True))
