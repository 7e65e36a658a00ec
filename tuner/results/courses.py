"""Who led a search at each moment, and with which value: the course that histories and comparisons show.

At each moment the leader is the trial that would have won if the search had ended then, and its value is the one by
which it would have been ranked (`tuner.history.standings`). So a course ends with the winner's value. It gets worse
where the leader's first good epochs were luck, and where a trial that was trained in full takes the lead from a
shortened one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from tuner.history.event_lines import Event, flaw
from tuner.history.records import RunRecord

Against = Literal["trials", "epochs", "time"]
Point = tuple[float, float]  # a place on an axis, and a value
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


def leads(record: RunRecord, events: Iterable[Event]) -> list[Lead]:
    """The course of a run, in the order of time: each change of the leader's value, and the last report.

    Trials that failed later don't lead. The end of a trial, which may change its value, counts at the report before it.
    """
    then = RunRecord(record.metric, record.mode)
    epochs: set[tuple[str, int]] = set()
    found: list[Lead] = []
    minutes = 0.0
    for event in events:
        if flaw(event) is not None:
            continue
        trial = record.trials.get(str(event.get("trial")))
        reported = event["event"] == "epoch_reported" and trial is not None
        if reported:
            epochs.add((event["trial"], event["epoch"]))
            minutes = record.active.at(event["time"]) / SECONDS_PER_MINUTE
        if not (reported and trial is not None and trial.status == "failed"):
            then.apply(event)
        if reported or event["event"] == "trial_ended":
            value = then.winning_value
            if value is not None and (not found or value != found[-1].value):
                found.append(Lead(len(epochs), minutes, value))
    return [*found, *(Lead(len(epochs), minutes, lead.value) for lead in found[-1:])]


def course_against(record: RunRecord, led: Sequence[Lead], against: Against) -> list[Point]:
    """The course as points of an axis; against trials, the best of each configuration and those started before it."""
    if against != "trials":
        return [(lead.epochs if against == "epochs" else lead.minutes, lead.value) for lead in led]
    first = {one.trial.trial: record.same_configuration(one.trial)[0].number for one in record.reported()}
    ordered = sorted(record.reported(), key=lambda one: first[one.trial.trial])
    leaders = accumulate(ordered, lambda *pair: max(pair, key=lambda one: record.rank(one.trial)))
    return [(first[one.trial.trial] + 1, best.value) for one, best in zip(ordered, leaders, strict=True)]


def value_at(course: Sequence[Point], place: float) -> float | None:
    """The value of a course at a place; None before the first value."""
    count = bisect_right(course, place + 1e-9, key=lambda point: point[0])
    return course[count - 1][1] if count else None
