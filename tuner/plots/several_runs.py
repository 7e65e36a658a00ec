"""Several runs in one plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.plots.base import CATEGORIES, Plot, escaped, label, new_figure
from tuner.plots.progress import AXES
from tuner.plots.value_axes import draw_values
from tuner.results.courses import Against, course_against

if TYPE_CHECKING:
    from tuner.results.comparison import Comparison

DASHES = ("solid", "dash", "dot", "dashdot")  # so that runs don't differ only in colour


def best_values(comparison: Comparison, against: Against = "epochs") -> Plot:
    """The value of every run's best so far, on the same axes."""
    import pandas as pd

    title = comparison.conclusion if against == "epochs" else f"the best so far against {AXES[against]}"
    metric, mode = comparison.runs[0].metric, comparison.runs[0].mode
    figure = new_figure(escaped(title[0].upper() + title[1:]), x=AXES[against], y=label(metric))
    tables = [pd.DataFrame(columns=[against, "best so far", "run"])]
    for index, (name, run) in enumerate(zip(comparison.names, comparison.runs, strict=True)):
        steps = pd.DataFrame(course_against(run, against), columns=[against, "best so far"])
        line = {"shape": "hv", "color": CATEGORIES[index % len(CATEGORIES)], "dash": DASHES[index % len(DASHES)]}
        if len(steps):
            figure.add_scatter(x=steps[against], y=steps["best so far"], name=escaped(name), mode="lines", line=line)
            tables.append(steps.assign(run=name))
    table = pd.concat(tables[1:] or tables, ignore_index=True)
    return Plot(f"comparison against {against}", draw_values(figure, table["best so far"], mode), table)
