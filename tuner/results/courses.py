"""Who led a search at each moment, and with which value: the course that histories and comparisons show.

At each moment the leader is the trial that would have won if the search had ended then, and its value is the one by
which it would have been ranked (`tuner.history.standings`). So a course ends with the winner's value. It gets worse
where the leader's first good epochs were luck, and where a trial that was trained in full takes the lead from a
shortened one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean
from typing import TYPE_CHECKING, Literal

from tuner.history.event_lines import flaw
from tuner.history.records import RunRecord
from tuner.results.groups import standard_error

if TYPE_CHECKING:
    import pandas as pd

    from tuner.results.comparison import Comparison
    from tuner.results.groups import Group
    from tuner.results.run import Run

Against = Literal["trials", "epochs", "time"]
Point = tuple[float, float]  # a place on an axis, and a value
PLACES = 120  # points of a course
SECONDS_PER_MINUTE = 60


@dataclass(frozen=True)
class Lead:
    """The leader's value after a report or the end of a trial.

    Attributes:
        epochs: how many epochs all trials together had been trained, each counted once
        minutes: of the search, without the pauses in which no driver worked on it
        value: the leader's
    """

    epochs: int
    minutes: float
    value: float


def leads(run: Run) -> list[Lead]:
    """The course of a run in the order of time: each change of the leader's value, and the last report.

    Trials that failed later don't lead. The end of a trial, which may change its value, counts at the report before it.
    """
    then = RunRecord(run.metric, run.mode)
    epochs: set[tuple[str, int]] = set()
    found: list[Lead] = []
    minutes = 0.0
    for event in run.readable_events:
        if flaw(event) is not None:
            continue
        trial = run.record.trials.get(str(event.get("trial")))
        reported = event["event"] == "epoch_reported" and trial is not None
        if reported:
            epochs.add((event["trial"], event["epoch"]))
            minutes = run.record.active.at(event["time"]) / SECONDS_PER_MINUTE
        if not (reported and trial is not None and trial.status == "failed"):
            then.apply(event)
        if reported or event["event"] == "trial_ended":
            value = then.winning_value
            if value is not None and (not found or value != found[-1].value):
                found.append(Lead(len(epochs), minutes, value))
    return [*found, *(Lead(len(epochs), minutes, lead.value) for lead in found[-1:])]


def course_against(run: Run, against: Against) -> list[Point]:
    """The course as points of an axis; against trials, the best of each configuration and those started before it."""
    if against != "trials":
        return [(lead.epochs if against == "epochs" else lead.minutes, lead.value) for lead in run.leads]
    first = {one.trial.trial: run.record.same_configuration(one.trial)[0].number for one in run.record.reported()}
    ordered = sorted(run.record.reported(), key=lambda one: first[one.trial.trial])
    leaders = accumulate(ordered, lambda *pair: max(pair, key=lambda one: run.record.rank(one.trial)))
    return [(first[one.trial.trial] + 1, best.value) for one, best in zip(ordered, leaders, strict=True)]


def value_at(course: Sequence[Point], place: float) -> float | None:
    """The value of a course at a place; None before the first value."""
    count = bisect_right(course, place + 1e-9, key=lambda point: point[0])
    return course[count - 1][1] if count else None


def course(run: Run, epochs: int) -> list[float | None]:
    """The leader's value after each epoch of all trials, up to this many epochs; None before the first value."""
    found: list[float | None] = [None] * epochs
    for lead in run.leads:
        if lead.epochs <= epochs:
            found[lead.epochs - 1 :] = [lead.value] * (epochs - lead.epochs + 1)
    return found


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
    known = [(run, course) for run in group.runs if (course := course_against(run, "time"))]
    if not known:
        return []
    courses, rows = [course for _, course in known], []
    last = max(max(course[-1][0], run.record.wall_seconds / SECONDS_PER_MINUTE) for run, course in known)
    for place in _places(max(course[0][0] for course in courses), last):
        values = [value for course in courses if (value := value_at(course, place)) is not None]
        rows.append((place, mean(values), standard_error(values), len(values)))
    return rows


def _places(first: float, last: float) -> list[float]:
    return [first + (last - first) * k / (PLACES - 1) for k in range(PLACES)] if first < last else [first]
