"""Several runs in one plot; of groups of runs the mean over seeds, and its standard error as a band."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.plots.figure import CATEGORIES, Plot, escaped, label, new_figure
from tuner.plots.progress import AXES
from tuner.plots.value_axes import draw_values, is_wide
from tuner.results.comparison import ComparedRuns, over_minutes
from tuner.results.courses import Against, course_against

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BAND = 0.2  # opacity of a colour
DASHES = ("solid", "dash", "dot", "dashdot")  # so that runs don't differ only in colour


def comparison_against(comparison: ComparedRuns, against: Against = "epochs") -> Plot:
    """The leaders' values so far on the same axes; for groups the mean and its error, except against trials."""
    draw = _means if against != "trials" and comparison.has_groups else _best_values
    return draw(comparison, against)


def _means(comparison: ComparedRuns, against: Against) -> Plot:
    """The mean of the leaders' values so far, a line for each group of runs: against epochs trained, or minutes."""
    table = comparison.over_time if against == "epochs" else over_minutes(comparison)
    axis = "epochs" if against == "epochs" else "minutes"
    metric, mode = comparison.runs[0].metric, comparison.runs[0].mode
    title = comparison.conclusion if against == "epochs" else _title(comparison, against, table)
    figure = new_figure(escaped(title[0].upper() + title[1:]), x=AXES[against], y=label(metric))
    values = table["mean"].to_list()
    lowest = min(values) / 2 if values and is_wide(values, mode) else None  # less doesn't fit on a logarithmic axis
    for index, name in enumerate(dict.fromkeys(table["group"])):
        _add_group(figure, table[table["group"] == name], axis, CATEGORIES[index % len(CATEGORIES)], lowest)
    return Plot(f"comparison against {against}", draw_values(figure, table["mean"], mode), table)


def _title(comparison: ComparedRuns, against: Against, table: pd.DataFrame) -> str:
    """What is drawn, and which groups are missing."""
    drawn = set(table["group"])
    if not drawn:
        return "no run has reported a value"
    missing = [group.name for group in comparison.groups if group.name not in drawn]
    without = f", without {', '.join(missing)}: no value was reported there" if missing else ""
    return f"the mean of the best so far against {AXES[against]}{without}"


def _add_group(figure: go.Figure, rows: pd.DataFrame, axis: str, colour: str, lowest: float | None) -> None:
    """A line, and a band of one standard error to each side."""
    name, error = escaped(str(rows["group"].iloc[0])), rows["standard error"].fillna(0.0)
    for edge, fill in (((rows["mean"] - error).clip(lower=lowest), None), (rows["mean"] + error, "tonexty")):
        figure.add_scatter(
            x=rows[axis],
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
        x=rows[axis],
        y=rows["mean"],
        name=name,
        legendgroup=name,
        mode="lines" if len(rows) > 1 else "markers",  # a line of one point wouldn't be seen
        line={"color": colour, "shape": "hv"},
        customdata=error,
        hovertemplate=f"%{{y:.5g}} ± %{{customdata:.2g}} after %{{x:.4g}} {axis}",
    )


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND})"


def _best_values(comparison: ComparedRuns, against: Against) -> Plot:
    """The value of every run's best so far, on the same axes."""
    import pandas as pd

    title = comparison.conclusion if against == "epochs" else f"the best so far against {AXES[against]}"
    metric, mode = comparison.runs[0].metric, comparison.runs[0].mode
    figure = new_figure(escaped(title[0].upper() + title[1:]), x=AXES[against], y=label(metric))
    tables = [pd.DataFrame(columns=[against, "best so far", "run"])]
    for index, (name, run) in enumerate(zip(comparison.names, comparison.runs, strict=True)):
        steps = pd.DataFrame(course_against(run.record, run.leads, against), columns=[against, "best so far"])
        line = {"shape": "hv", "color": CATEGORIES[index % len(CATEGORIES)], "dash": DASHES[index % len(DASHES)]}
        if len(steps):
            figure.add_scatter(x=steps[against], y=steps["best so far"], name=escaped(name), mode="lines", line=line)
            tables.append(steps.assign(run=name))
    table = pd.concat(tables[1:] or tables, ignore_index=True)
    return Plot(f"comparison against {against}", draw_values(figure, table["best so far"], mode), table)
