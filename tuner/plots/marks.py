"""Trials as marks: filled if they were trained in full, hollow if they ended before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.history.records import TrialRecord, full_length
from tuner.plots.figure import COLOURS, GREY, SYMBOLS
from tuner.results.run import RecordedRun

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

FULL_SIZE, SMALLEST = 9, 5  # pixels
CROWDED = 300  # from this number on marks are small
MANY_POINTS = 2000  # from this number on marks are drawn by WebGL
HOVER = "trial %{customdata[0]}, %{customdata[1]} epochs"


@dataclass(frozen=True)
class Group:
    """Trials that share a mark: its text for the legend, their rows, and plotly's marker."""

    name: str
    rows: pd.DataFrame
    marker: dict[str, Any]

    @property
    def customdata(self) -> list[list[Any]]:
        """For each mark the trial's id, and its number of trained epochs."""
        return [list(pair) for pair in zip(self.rows["trial"], self.rows["trained"].tolist(), strict=True)]


def in_full(run: RecordedRun, trial: TrialRecord) -> bool:
    """Whether the trial was trained as long as its configuration and the budget say."""
    return trial.epoch >= full_length(trial.config, run.longest_trial)


def by_status(table: pd.DataFrame, longest: int) -> Iterator[Group]:
    """Groups by the trials' outcomes, from a table with "trial", "status", "trained" (epochs) and "in full"."""
    for (status, full), rows in table.groupby(["status", "in full"], sort=False):
        symbol, colour = SYMBOLS.get(str(status), "circle"), COLOURS[str(status)]
        yield Group(
            _name(str(status), bool(full), rows, longest), rows, _marker(symbol, colour, bool(full), rows, longest)
        )


def by_length(table: pd.DataFrame, longest: int) -> Iterator[Group]:
    """Groups of such a table: trials trained in full, and the others, which come first to be drawn below."""
    for full, rows in table.groupby("in full", sort=True):
        name = _name("completed" if full else "ended", bool(full), rows, longest)
        yield Group(name, rows, _marker("circle" if full else "square", GREY, bool(full), rows, longest))


def draw_trials(figure: go.Figure, table: pd.DataFrame, longest: int, x: str, hover: str = "%{y:.5g}") -> None:
    """Draw a mark for each trial of a table for `by_status`, which also has "value", against its column `x`."""
    for group in by_status(table, longest):
        figure.add_scatter(
            x=group.rows[x],
            y=group.rows["value"],
            customdata=group.customdata,
            name=group.name,
            mode="markers",
            marker=group.marker,
            hovertemplate=f"{HOVER}: {hover}<extra></extra>",
        )


def size_of(rows: pd.DataFrame) -> int:
    """Pixels of a filled mark, fewer if there are many marks."""
    return SMALLEST if len(rows) > CROWDED else FULL_SIZE - 1


def _name(status: str, full: bool, rows: pd.DataFrame, longest: int) -> str:
    least, most = int(rows["trained"].min()), int(rows["trained"].max())
    if full:
        return f"{'trained in full' if status == 'completed' else status}, {_epochs(least, most)}"
    return f"{status} after {_epochs(least, most)}" + (f" of {longest}" if most < longest else "")


def _epochs(least: int, most: int) -> str:
    between = str(most) if least == most else f"{least} to {most}"
    return f"{between} epoch{'s' if most != 1 else ''}"


def _marker(symbol: str, colour: str, full: bool, rows: pd.DataFrame, longest: int) -> dict[str, Any]:
    if full:
        return {
            "color": colour,
            "symbol": symbol,
            "size": size_of(rows),
            "line": {"width": 0},
        }
    if symbol == "x":  # the open form of this is a box
        return {"color": colour, "symbol": symbol, "size": FULL_SIZE - 2}
    sizes = SMALLEST + (FULL_SIZE - SMALLEST) * rows["trained"] / max(1, longest)
    return {"color": colour, "symbol": f"{symbol}-open", "size": sizes.round(1).tolist(), "line": {"width": 1.5}}
