"""What trials reach against what their networks cost when they answer: each configuration's, and the front."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.history.records import TrialRecord
from tuner.results.run import RecordedRun


@dataclass(frozen=True)
class Point:
    """A configuration's trial, the value by which it is compared, and its cost."""

    trial: TrialRecord
    value: float
    cost: float


def points(run: RecordedRun, cost: str) -> list[Point]:
    """A point for each configuration with a value and a known cost of this name, in the order in which they rank."""
    if run.costs is None:
        return []
    found = []
    for trial in run.record.rows():
        standing, known = run.record.standing_of(trial.trial), run.costs.of(trial.config)
        if standing is not None and known is not None:
            found.append(Point(trial, standing.value, getattr(known, cost)))
    return found


def front(found: Iterable[Point], mode: str) -> list[Point]:
    """Those points that no other is at least equal to in both value and cost, by rising cost."""
    best: list[Point] = []
    for point in sorted(found, key=lambda one: (one.cost, one.value if mode == "min" else -one.value)):
        if not best or (point.value < best[-1].value if mode == "min" else point.value > best[-1].value):
            best.append(point)
    return best
