"""What the search learned about the space: which hyperparameters matter, and where their good values are."""

from __future__ import annotations

from html import unescape
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.plots.configurations import Tried
from tuner.plots.figure import (
    BAR,
    BEST,
    GREY,
    SCALE,
    SURFACE,
    Plot,
    escaped,
    ids,
    label,
    new_figure,
)
from tuner.plots.marks import CROWDED, HOVER, MANY_POINTS, Group, by_length, size_of
from tuner.plots.scales import Scale
from tuner.plots.value_axes import colours_of, draw_values, is_wide, written
from tuner.results.importance import headline
from tuner.results.run import RecordedRun
from tuner.search.points import is_ordered

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLUMNS = 3  # of the slice plot
PLACES = 60  # along either axis of a contour
FEWEST_POINTS = 8  # needed for a surface; fewer are only shown as points
MOST_LINES = 300  # of parallel coordinates: more would hide each other
SMOOTHING = 0.12  # of a contour, as a share of an axis
NEAR = 0.24  # a place of a contour is coloured if a trial is as near, as a share of an axis
LONGEST_BESIDE_BAR = 20  # characters of a name: on a phone the bars need the space
LONGEST_PARALLEL, ROOM = 18, 96  # characters of a name above an axis of parallel coordinates, and above all axes

Floats = npt.NDArray[np.float64]


def importances(run: RecordedRun) -> Plot | None:
    """The share of the metric's variance that each hyperparameter explains alone, with its standard error.

    None if there are too few trials.
    """
    import pandas as pd

    found = run.importances
    if not found:
        return None
    rows = [(one.name, one.share, one.deviation) for one in found]
    table = pd.DataFrame(rows, columns=["hyperparameter", "share", "standard error"])
    figure = new_figure(headline(found, run.dead).text, x="share of the variance")
    figure.add_bar(
        x=table["share"],
        y=[label(name, LONGEST_BESIDE_BAR) for name in table["hyperparameter"]],
        orientation="h",
        marker={"color": BEST},
        error_x={
            "type": "data",
            "array": table["standard error"],
            "arrayminus": table[["share", "standard error"]].min(axis=1),  # shares aren't negative
            "color": GREY,
            "thickness": 2,
        },
        hovertemplate="%{y}: %{x:.1%}<extra></extra>",
    )
    figure.update_yaxes(autorange="reversed", type="category").update_xaxes(tickformat=".0%", rangemode="tozero")
    figure.update_layout(height=max(260, 160 + 34 * len(found)))
    return Plot("importance", figure, table)


def parallel_coordinates(run: RecordedRun, whole: Tried) -> Plot | None:
    """A line per trial through its hyperparameters to the metric, coloured by the metric; None without both."""
    import plotly.graph_objects as go

    if not whole.settings or not whole.trials:
        return None
    found = whole.best(MOST_LINES, run.mode)
    longest = max(8, min(LONGEST_PARALLEL, ROOM // (len(found.settings) + 2)))
    axes = [_parallel_axis(label(name, longest), found.scale(name)) for name in found.settings]
    if len(set(found.epochs)) > 1:
        axes.append({"label": "epochs", "values": found.epochs, "tickvals": _whole_ticks(found.epochs)})
    values, bar = colours_of(found.values, run.mode)
    axes.append({"label": label(run.metric, longest), "values": values, **bar})
    which = f" (the best {len(found.trials)} of {len(whole.trials):,})" if len(found.trials) < len(whole.trials) else ""
    figure = new_figure(f"Where the lines of the good trials run together, their values are good{which}")
    line = {"color": values, "colorscale": SCALE, "reversescale": run.mode == "max", "showscale": True}
    colour_bar = {**BAR, "title": _along_bar(run), **bar}
    customdata = ids(trial.trial for trial in found.trials)
    figure.add_trace(go.Parcoords(dimensions=axes, line={**line, "colorbar": colour_bar}, customdata=customdata))
    figure.update_layout(margin={"l": 80, "t": 100})
    return Plot("parallel coordinates", figure, found.table(run.metric), wide=True)


def slices(run: RecordedRun, found: Tried) -> Plot | None:
    """The metric against each hyperparameter; trials that ended early are hollow. None without both."""
    from plotly.subplots import make_subplots

    names = list(found.settings)
    if not names or not found.trials:
        return None
    columns = min(COLUMNS, len(names))
    lines = -(-len(names) // columns)
    better = "high" if run.mode == "max" else "low"
    figure = new_figure(f"Each hyperparameter by itself: where the filled points are {better} is good")
    grid = make_subplots(
        lines,
        columns,
        shared_yaxes=True,
        subplot_titles=[label(name, 22) for name in names],
        figure=figure,
        vertical_spacing=0.28 / lines,
        horizontal_spacing=0.04,
    )
    for index, name in enumerate(names):
        place = {"row": index // columns + 1, "col": index % columns + 1}
        _add_slice(grid, run, found, name, place, legend=index == 0)
    for row in range(1, lines + 1):
        grid.update_yaxes(title_text=label(run.metric, LONGEST_PARALLEL), row=row, col=1)
    numbers = [trial.number for trial, full in zip(found.trials, found.full, strict=True) if full]
    whole = {"tickvals": _whole_ticks(numbers)} if numbers else {}
    grid.update_layout(
        height=170 + 260 * lines,
        margin={"t": 120},
        coloraxis={"colorscale": SCALE, "reversescale": True, "colorbar": {**BAR, "title": {"text": "trial"}, **whole}},
    )
    return Plot("slices", draw_values(grid, found.values, run.mode, headings=True), found.table(run.metric), wide=True)


def contour(run: RecordedRun, found: Tried, first: str | None = None, second: str | None = None) -> Plot | None:
    """The metric over two hyperparameters, by default the two most important ordered ones that enough trials have.

    The surface is of the trials that were trained in full; if those are too few, of the values that all would reach at
    full length, see `tuner.results.full_length`. None without two such hyperparameters, or with too few trials for it.
    """
    names = _two_ordered(run, found, first, second)
    if len(names) < 2 or not found.trials:
        return None
    scales = [found.scale(name) for name in names]
    both = scales[0].used & scales[1].used
    if both.sum() < FEWEST_POINTS:
        return None
    values, chosen = found.values, both & np.array(found.full)
    whole = bool(chosen.sum() >= FEWEST_POINTS)
    if not whole:
        values, chosen = _at_full_length(run, found), both
    figure = new_figure(
        f"{label(run.metric)} over {label(names[0])} and {label(names[1])}, from {int(chosen.sum())} trials "
        + ("trained in full" if whole or all(found.full) else "as the search's model predicts them at full length"),
        x=label(names[0]),
        y=label(names[1]),
    )
    _add_surface(figure, run, scales, values, chosen)
    table = found.table(run.metric)
    for group in by_length(table[both], run.longest_trial):
        rows = group.rows.index.to_numpy()
        marker = {"size": 4 if len(rows) > CROWDED else 7, "color": "white", "line": {"color": "black", "width": 1}}
        if not group.rows["in full"].iloc[0]:
            marker = {**marker, "size": 5, "symbol": "square", "color": "rgba(255,255,255,0.5)"}
        figure.add_scatter(
            x=scales[0].drawn[rows],
            y=scales[1].drawn[rows],
            customdata=group.customdata,
            text=[f"{run.metric} {value:.5g}" for value in found.values[rows]],
            mode="markers",
            name=group.name,
            marker=marker,
            hovertemplate=f"{HOVER}: %{{text}}<extra></extra>",
        )
    return Plot("contour", _with_axes(figure, *scales), table[both])


def ranks(run: RecordedRun, found: Tried) -> Plot | None:
    """Trials over the two hyperparameters that matter most, coloured by their rank: 1 is the best.

    Trials that ended early have hollow marks. None without a hyperparameter or a value.
    """
    names = list(dict.fromkeys([one.name for one in run.importances if one.name in found.settings] + [*found.settings]))
    if not names or not found.trials:
        return None
    table = found.table(run.metric)
    table["rank"] = table[run.metric].rank(ascending=run.mode == "min", method="first").astype(int)
    scales = [found.scale(name) for name in names[:2]]
    shown = (*names[:2], run.metric)[:2]
    figure = new_figure(
        f"The better half lies where the blue points are, over {label(shown[0])} and {label(shown[1])}",
        x=label(shown[0]),
        y=label(shown[1]),
    )
    across = scales[1].drawn if len(scales) > 1 else found.values
    for group in by_length(table, run.longest_trial):
        rows = group.rows.index.to_numpy()
        figure.add_scatter(
            x=scales[0].drawn[rows],
            y=across[rows],
            customdata=group.customdata,
            mode="markers",
            name=group.name,
            legendgroup=group.name,
            showlegend=False,
            marker={
                **group.marker,
                "color": group.rows["rank"],
                "coloraxis": "coloraxis",
                "size": size_of(group.rows),
            },
            hovertemplate=f"{HOVER}: rank %{{marker.color}}<extra></extra>",
        )
        _name_in_legend(figure, group)
    bar = {**BAR, "title": {"text": "rank"}, "tickvals": _whole_ticks(table["rank"].tolist())}
    figure.update_layout(coloraxis={"colorscale": SCALE, "colorbar": bar})
    figure = _with_axes(figure, *scales)
    return Plot("ranks", figure if len(scales) > 1 else draw_values(figure, found.values, run.mode), table)


# Inside


def _parallel_axis(name: str, scale: Scale) -> dict[str, Any]:
    names = [unescape(tick) for tick in scale.names]  # here plotly takes no markup
    return {"label": name, "values": scale.places, "tickvals": scale.ticks, "ticktext": names}


def _along_bar(run: RecordedRun) -> dict[str, str]:
    """The metric's name next to a colour bar, rotated: above the bar a long name would need too much room."""
    return {"text": label(run.metric, LONGEST_PARALLEL), "side": "right"}


def _whole_ticks(numbers: list[int]) -> list[int]:
    return sorted({round(tick) for tick in np.linspace(min(numbers), max(numbers), 5)})


def _add_slice(
    grid: go.Figure, run: RecordedRun, found: Tried, name: str, place: dict[str, int], *, legend: bool
) -> None:
    scale = found.scale(name)
    table, named = found.table(run.metric), scale.is_named
    draws = grid.add_scattergl if len(found.trials) * len(found.settings) > MANY_POINTS else grid.add_scatter
    for group in by_length(table, run.longest_trial):
        rows = group.rows.index.to_numpy()
        marker = {**group.marker, "opacity": 0.9 if group.rows["in full"].iloc[0] else 0.75}
        if group.rows["in full"].iloc[0]:
            marker |= {"color": group.rows["number"], "coloraxis": "coloraxis"}
        draws(
            x=scale.drawn[rows],
            y=found.values[rows],
            customdata=group.customdata,
            text=[escaped(scale.texts[row]) for row in rows] if named else None,
            mode="markers",
            name=group.name,
            legendgroup=group.name,
            showlegend=False,
            marker=marker,
            hovertemplate=f"{HOVER}: {'%{text}' if named else '%{x:.4g}'} gives %{{y:.5g}}<extra></extra>",
            **place,
        )
        if legend:
            _name_in_legend(grid, group)
    grid.update_xaxes(**scale.axis, **place)


def _name_in_legend(figure: go.Figure, group: Group) -> None:
    """For marks coloured by numbers: a legend would draw them black, which is invisible on a dark page."""
    marker = {"symbol": group.marker["symbol"], "color": GREY, "size": 8}
    figure.add_scatter(x=[None], y=[None], mode="markers", name=group.name, legendgroup=group.name, marker=marker)


def _two_ordered(run: RecordedRun, found: Tried, first: str | None, second: str | None) -> list[str]:
    ordered = [name for name in found.settings if is_ordered(found.domains[name])]
    by_weight = [one.name for one in run.importances if one.name in ordered]
    wanted = [name for name in (first, second) if name is not None]
    names = list(dict.fromkeys([*wanted, *by_weight, *ordered]))
    used = {name: found.scale(name).used for name in names if name in found.settings}
    pairs = [pair for pair in combinations(names, 2) if set(wanted) <= set(pair)]
    enough = (pair for pair in pairs if all(name in used for name in pair))
    chosen = next((pair for pair in enough if (used[pair[0]] & used[pair[1]]).sum() >= FEWEST_POINTS), names[:2])
    return list(chosen)


def _at_full_length(run: RecordedRun, found: Tried) -> Floats:
    """The values [N] that trials would reach; for trials that aren't in the model, the values that they reached."""
    predicted = run.full_outcomes
    known = dict(zip(predicted.trials, predicted.values, strict=True))
    reached = zip(found.trials, found.values.tolist(), strict=True)
    return np.array([known.get(trial.trial, value) for trial, value in reached])


def _with_axes(figure: go.Figure, *scales: Scale) -> go.Figure:
    for axis, scale in zip(("xaxis", "yaxis"), scales, strict=False):
        figure.update_layout({axis: scale.axis})
    return figure


def _add_surface(
    figure: go.Figure, run: RecordedRun, scales: list[Scale], values: Floats, chosen: npt.NDArray[np.bool_]
) -> None:
    """Add a surface coloured by the metric, or by its decimal logarithm if it spans decades."""
    shown, bar = colours_of(values, run.mode)
    places = [_grid(scale.places[chosen]) for scale in scales]
    surface = _interpolated(places[0][0], places[1][0], shown[chosen])
    axes = [scale.on_axis(marks) for scale, (_, marks) in zip(scales, places, strict=True)]
    wide = is_wide(values.tolist(), run.mode)
    figure.add_contour(
        x=axes[0],
        y=axes[1],
        z=surface.astype(np.float32),
        text=[[written(10**value) for value in row] for row in np.nan_to_num(surface)] if wide else None,
        colorscale=SURFACE,
        reversescale=run.mode == "min",
        contours={"coloring": "heatmap"},
        hoverongaps=False,
        line={"width": 0.5},
        colorbar={**BAR, "title": _along_bar(run), **bar},
        hovertemplate="%{x:.4g}, %{y:.4g}: about " + ("%{text}" if wide else "%{z:.4g}") + "<extra></extra>",
    )


def _grid(places: Floats) -> tuple[Floats, Floats]:
    """Places scaled to [0, 1], and evenly spaced ones along them."""
    low, width = places.min(), np.ptp(places) or 1.0
    return (places - low) / width, low + np.linspace(0, 1, PLACES) * width


def _interpolated(x: Floats, y: Floats, z: Floats) -> Floats:
    """Values at a grid [PLACES, PLACES]: means of the points, near ones with more weight (Nadaraya-Watson).

    NaN where no point is near: nothing is known there.
    """
    marks = np.linspace(0, 1, PLACES)
    across, rows = (marks[:, None] - x) ** 2, []
    for mark in marks:  # a row at a time: the distances of all would take a hundred times as much memory
        distances = across + (mark - y) ** 2
        weights = np.exp(-0.5 * distances / SMOOTHING**2) + 1e-12 / (distances + 1e-6)
        means = (weights * z).sum(axis=1) / weights.sum(axis=1)
        rows.append(np.where(distances.min(axis=1) <= NEAR**2, means, np.nan))
    return np.array(rows)
