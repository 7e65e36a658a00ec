"""What the search learned of the space: which hyperparameters matter, and where their good values lie."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.history.records import TrialRecord
from tuner.plots.base import BEST, GREY, Plot, axis_of, is_log, new_figure, style_axes
from tuner.results.importance import headline
from tuner.search.features import is_ordered
from tuner.space import Choice, Domain, Integer

if TYPE_CHECKING:
    import pandas as pd

    from tuner.results.run import Run

SCALE = "Viridis"
COLUMNS = 3  # of the slice plot
PLACES = 60  # along either axis of a contour
OUTLINE = {"color": GREY, "width": 1}  # without it the darkest points are lost on a dark page
SMOOTHING = 0.12  # of a contour, as a share of an axis

Floats = npt.NDArray[np.float64]


def importances(run: Run) -> Plot:
    """The share of the metric's variance that each hyperparameter explains alone, with its standard error."""
    import pandas as pd

    found = run.importances
    rows = [(one.name, one.share, one.deviation) for one in found]
    table = pd.DataFrame(rows, columns=["hyperparameter", "share", "standard error"])
    figure = new_figure(headline(found).text, x="share of the variance")
    figure.add_bar(
        x=table["share"],
        y=table["hyperparameter"],
        orientation="h",
        marker={"color": BEST},
        error_x={"type": "data", "array": table["standard error"], "color": GREY},
        hovertemplate="%{y}: %{x:.1%}<extra></extra>",
    )
    figure.update_yaxes(autorange="reversed").update_xaxes(tickformat=".0%", rangemode="tozero")
    return Plot("importance", figure, table)


def parallel_coordinates(run: Run) -> Plot:
    """A line per trial through its hyperparameters to the metric, coloured by the metric."""
    import plotly.graph_objects as go

    table = configurations(run)
    axes = [_axis(name, run.space.dimensions[name], table) for name in run.space.dimensions if name in table]
    values = table[run.metric]
    axes.append({"label": run.metric, "values": values})
    figure = new_figure("Where the lines of the good trials run together, their values are good")
    figure.add_trace(
        go.Parcoords(
            dimensions=axes,
            line={
                "color": values,
                "colorscale": SCALE,
                "reversescale": run.mode == "min",
                "showscale": True,
                "colorbar": {"title": {"text": run.metric}},
            },
        )
    )
    return Plot("parallel coordinates", figure, table)


def slices(run: Run) -> Plot:
    """The metric against each hyperparameter, coloured by when the trial was started."""
    from plotly.subplots import make_subplots

    table = configurations(run)
    names = [name for name in run.space.dimensions if name in table]
    columns = min(COLUMNS, max(1, len(names)))
    lines = -(-len(names) // columns) or 1
    figure = new_figure(
        "Each hyperparameter by itself: where the points are high" + (" is good" if run.mode == "max" else " is bad")
    )
    grid = make_subplots(
        lines, columns, shared_yaxes=True, subplot_titles=names, figure=figure, vertical_spacing=0.25 / lines
    )
    for index, name in enumerate(names):
        rows = table[table[name].notna()]
        place = {"row": index // columns + 1, "col": index % columns + 1}
        domain = run.space.dimensions[name]
        grid.add_scatter(
            x=rows[name] if is_ordered(domain) else rows[name].astype(str),
            y=rows[run.metric],
            mode="markers",
            text=rows["trial"],
            showlegend=False,
            marker={
                "color": rows["number"],
                "colorscale": SCALE,
                "size": 6,
                "opacity": 0.8,
                "coloraxis": "coloraxis",
                "line": OUTLINE,
            },
            hovertemplate="trial %{text}: %{x} gives %{y:.5g}<extra></extra>",
            **place,
        )
        grid.update_xaxes(**axis_of(domain), **place)
    style_axes(grid).update_layout(
        height=130 + 260 * lines,
        margin={"t": 100},
        coloraxis={"colorscale": SCALE, "colorbar": {"title": {"text": "trial"}}},
    )
    return Plot("slices", grid, table)


def contour(run: Run, first: str | None = None, second: str | None = None) -> Plot:
    """The metric over two hyperparameters, by default the two that matter most of those with an order."""
    table = configurations(run)
    ordered = [one.name for one in run.importances if is_ordered(run.space.dimensions[one.name])]
    ordered += [name for name in run.space.dimensions if name in table and is_ordered(run.space.dimensions[name])]
    names = list(dict.fromkeys(name for name in (first, second, *ordered) if name is not None))[:2]
    if len(names) < 2:
        return Plot("contour", new_figure("A contour needs two hyperparameters that are numbers"), table)
    x, y = names
    rows = table[table[x].notna() & table[y].notna()]
    figure = new_figure(f"{run.metric} over {x} and {y}", x=x, y=y)
    domains = run.space.dimensions[x], run.space.dimensions[y]
    if len(rows) >= 4:
        places = [_grid(rows[name], domain) for name, domain in zip(names, domains, strict=True)]
        figure.add_contour(
            x=places[0][1],
            y=places[1][1],
            z=_interpolated(places[0][0], places[1][0], rows[run.metric].to_numpy(dtype=float)),
            colorscale=SCALE,
            reversescale=run.mode == "min",
            contours={"coloring": "heatmap"},
            line={"width": 0.5},
            colorbar={"title": {"text": run.metric}},
            hovertemplate="%{x:.4g}, %{y:.4g}: about %{z:.5g}<extra></extra>",
        )
    figure.add_scatter(
        x=rows[x],
        y=rows[y],
        text=rows["trial"],
        mode="markers",
        showlegend=False,
        marker={"color": "white", "size": 6, "line": {"color": "black", "width": 1}},
        hovertemplate="trial %{text}: %{x:.4g}, %{y:.4g}<extra></extra>",
    )
    figure.update_xaxes(**axis_of(domains[0])).update_yaxes(**axis_of(domains[1]))
    return Plot("contour", figure, rows[["trial", x, y, run.metric]])


def ranks(run: Run) -> Plot:
    """Trials over the two hyperparameters that matter most, coloured by their rank: 1 is the best."""
    table = configurations(run)
    table["rank"] = table[run.metric].rank(ascending=run.mode == "min", method="first")
    names = [one.name for one in run.importances] + [name for name in run.space.dimensions if name in table]
    x, y = (*dict.fromkeys(names), run.metric, run.metric)[:2]
    figure = new_figure(f"The better half lies where the dark points are, over {x} and {y}", x=x, y=y)
    figure.add_scatter(
        x=table[x],
        y=table[y],
        text=table["trial"],
        mode="markers",
        marker={
            "color": table["rank"],
            "colorscale": SCALE,
            "size": 9,
            "line": OUTLINE,
            "colorbar": {"title": {"text": "rank"}},
        },
        hovertemplate="trial %{text}: %{x}, %{y}<extra></extra>",
    )
    for axis, name in (("xaxis", x), ("yaxis", y)):
        if name in run.space.dimensions:
            figure.update_layout({axis: axis_of(run.space.dimensions[name])})
    return Plot("ranks", figure, table)


def configurations(run: Run) -> pd.DataFrame:
    """A row per trial that reported: trial, number, the metric's best value, and each hyperparameter by its name."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for trial in run.record.trials.values():
        best = run.record.best_of(trial.trial)
        if best is not None and trial.status != "failed":
            rows.append({"trial": trial.trial, "number": trial.number, **_searched(run, trial), run.metric: best[1]})
    names = [name for name in run.space.dimensions if any(name in row for row in rows)]
    table = pd.DataFrame(rows, columns=["trial", "number", *names, run.metric])
    for name in names:
        if isinstance(run.space.dimensions[name], Choice):  # whose numbers would become floats where some are missing
            table[name] = pd.Series([row.get(name) for row in rows], dtype=object)
    return table


# Inside


def _searched(run: Run, trial: TrialRecord) -> dict[str, Any]:
    flat = run.space.flatten(run.space.project(trial.config))
    return {name: flat[name] for name in run.space.dimensions if name in flat}


def _axis(name: str, domain: Domain, table: pd.DataFrame) -> dict[str, Any]:
    """One axis of the parallel coordinates; a trial without the hyperparameter passes below all values."""
    column = table[name]
    missing = column.isna()
    if isinstance(domain, Choice):
        labels = [str(option) for option in domain.options if str(option) in set(map(str, column[~missing]))]
        ticks = [float(index) for index in range(len(labels))]
        shown = np.array([math.nan if m else labels.index(str(v)) for v, m in zip(column, missing, strict=True)])
    else:
        shown = _on_scale(column, domain)
        ticks = np.linspace(np.nanmin(shown), np.nanmax(shown), 5).tolist()
        if isinstance(domain, Integer) and not domain.log:
            ticks = sorted({float(round(tick)) for tick in ticks})
        labels = [f"{10**tick if is_log(domain) else tick:.3g}" for tick in ticks]
    if missing.any():
        below = ticks[0] - 0.15 * ((ticks[-1] - ticks[0]) or 1)
        shown = np.nan_to_num(shown, nan=below)
        ticks, labels = [below, *ticks], ["none", *labels]
    return {"label": name, "values": shown, "tickvals": ticks, "ticktext": labels}


def _on_scale(column: pd.Series[Any], domain: Domain) -> Floats:
    """Numbers, or their decimal logarithms where the hyperparameter is searched on a logarithmic scale."""
    numbers = column.to_numpy(dtype=float)
    return np.log10(numbers) if is_log(domain) else numbers


def _grid(column: pd.Series[Any], domain: Domain) -> tuple[Floats, Floats]:
    """The column scaled to [0, 1], and the values of evenly spread places along it."""
    shown = _on_scale(column, domain)
    low, width = shown.min(), np.ptp(shown) or 1.0
    marks = low + np.linspace(0, 1, PLACES) * width
    return (shown - low) / width, 10**marks if is_log(domain) else marks


def _interpolated(x: Floats, y: Floats, z: Floats) -> Floats:
    """Values at a grid [PLACES, PLACES]: means of the points, near ones with more weight (Nadaraya-Watson)."""
    marks = np.linspace(0, 1, PLACES)
    distances = (marks[None, :, None] - x) ** 2 + (marks[:, None, None] - y) ** 2
    weights = np.exp(-0.5 * distances / SMOOTHING**2) + 1e-12 / (distances + 1e-6)
    return np.asarray((weights * z).sum(axis=2) / weights.sum(axis=2))
