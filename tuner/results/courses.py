"""The best value so far of groups of runs against time: the mean over seeds, and its error."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from tuner.results.groups import standard_error

if TYPE_CHECKING:
    import pandas as pd

    from tuner.results.comparison import Comparison
    from tuner.results.groups import Group
    from tuner.results.run import Run

PLACES = 120  # points of a course
SECONDS_PER_MINUTE = 60


def over_minutes(comparison: Comparison) -> pd.DataFrame:
    """What groups had reached after each number of minutes: group, minutes, mean, standard error, runs.

    The minutes are of the whole search with its start-up and waiting, without the pauses in which no driver worked on
    it. A group's rows begin when all of its runs have a value, so that the mean doesn't jump as runs join, and end with
    its longest run; a run that ended before keeps its value. A run without any value is left out.
    """
    import pandas as pd

    rows = [(group.name, *row) for group in comparison.groups for row in _rows(group)]
    table = pd.DataFrame(rows, columns=["group", "minutes", "mean", "standard error", "runs"])
    return table.astype({"minutes": "float64", "mean": "float64", "standard error": "float64"})


def _rows(group: Group) -> list[tuple[float, float, float | None, int]]:
    """The rows of one group; none if no run of it has a value."""
    courses = [course for run in group.runs if (course := _course(run))]
    if not courses:
        return []
    rows = []
    for place in _places(max(course[0][0] for course in courses), max(course[-1][0] for course in courses)):
        values = [_at(course, place) for course in courses]
        rows.append((place, mean(values), standard_error(values), len(values)))
    return rows


def _course(run: Run) -> list[tuple[float, float]]:
    """Minutes of the search and the best value so far, at every report from the first value on, and at the end."""
    better = max if run.mode == "max" else min
    found: list[tuple[float, float]] = []
    for time, trial, _, value in run.record.reports():
        if value is not None and trial.status != "failed":
            best = better(found[-1][1], value) if found else value
            found.append((run.record.active.at(time) / SECONDS_PER_MINUTE, best))
    end = run.record.wall_seconds / SECONDS_PER_MINUTE
    return found + [(max(end, at), best) for at, best in found[-1:]]


def _places(first: float, last: float) -> list[float]:
    return [first + (last - first) * k / (PLACES - 1) for k in range(PLACES)] if first < last else [first]


def _at(course: list[tuple[float, float]], minutes: float) -> float:
    """A run's best value at that time; times begin when all runs of the group have a value."""
    return next(value for time, value in reversed(course) if time <= minutes + 1e-9)
