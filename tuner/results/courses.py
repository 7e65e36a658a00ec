"""The best value so far of groups of runs against time: the mean over seeds, and its error."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from tuner.results.groups import standard_error

if TYPE_CHECKING:
    import pandas as pd

    from tuner.results.comparison import Comparison
    from tuner.results.run import Run

PLACES = 120  # points of a course
SECONDS_PER_MINUTE = 60


def over_minutes(comparison: Comparison) -> pd.DataFrame:
    """What groups had reached after each number of minutes: group, minutes, mean, standard error, runs.

    The minutes are of the whole search with its start-up and waiting, up to the end of the shortest run. Rows begin
    when all of a group's runs have a value: otherwise the mean would jump as runs join.
    """
    import pandas as pd

    courses = {run.path: _course(run) for run in comparison.runs}
    known = [course for course in courses.values() if course]
    last = min((course[-1][0] for course in known), default=0.0)
    rows = []
    for group in comparison.groups:
        of_group = [courses[run.path] for run in group.runs if courses[run.path]]
        first = max((course[0][0] for course in of_group), default=0.0)
        for place in _places(first, last) if of_group and first <= last else []:
            values = [_at(course, place) for course in of_group]
            rows.append((group.name, place, mean(values), standard_error(values), len(values)))
    table = pd.DataFrame(rows, columns=["group", "minutes", "mean", "standard error", "runs"])
    return table.astype({"minutes": "float64", "mean": "float64", "standard error": "float64"})


def _course(run: Run) -> list[tuple[float, float]]:
    """Minutes of the search and the best value so far, from the first value on, at every report."""
    begun = run.events[0]["time"] if run.events else 0.0
    better = max if run.mode == "max" else min
    found: list[tuple[float, float]] = []
    for time, trial, _, value in run.record.reports():
        if value is not None and trial.status != "failed":
            best = better(found[-1][1], value) if found else value
            found.append(((time - begun) / SECONDS_PER_MINUTE, best))
    return found


def _places(first: float, last: float) -> list[float]:
    return [first + (last - first) * k / (PLACES - 1) for k in range(PLACES)] if first < last else [first]


def _at(course: list[tuple[float, float]], minutes: float) -> float:
    """A run's best value at that time; times begin when all runs of the group have a value."""
    return next(value for time, value in reversed(course) if time <= minutes + 1e-9)
