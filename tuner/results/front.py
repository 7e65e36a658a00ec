"""Two objectives of a run: each configuration's point, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.history.event_lines import finite
from tuner.history.records import TrialRecord
from tuner.results.run import RecordedRun
from tuner.space.mode import Objective
from tuner.space.pareto import fronts, hypervolume, order
from tuner.trial.inference_cost import COSTS


@dataclass(frozen=True)
class Point:
    """A configuration's trial, the value by which it is compared, and its second objective, such as a cost."""

    trial: TrialRecord
    value: float
    cost: float


def second_of(run: RecordedRun) -> Objective | None:
    """The second objective: the study's, else the limited cost that rules most networks out; None for neither."""
    if run.second is not None or run.costs is None:
        return run.second
    broken = [name for one in run.costs.by_network.values() for name in one.broken(run.costs.limits)]
    return Objective(max(run.costs.asked, key=broken.count), "min")


def points(run: RecordedRun, second: Objective) -> list[Point]:
    """A point for each configuration with a value and a known second objective, in the order in which they rank.

    Failed trials have none, as they have no rank.
    """
    ranked = [(one, second_value(run, one.trial, one.worth.epoch, second.metric)) for one in run.record.ranked()]
    return [Point(one.trial, one.value, cost) for one, cost in ranked if cost is not None]


def front(found: Sequence[Point], first: Objective, second: Objective) -> list[Point]:
    """Those points that no other is at least equal to in both, the best in the second objective first."""
    if not found:
        return []
    places = fronts(np.array([(first.oriented(one.value), second.oriented(one.cost)) for one in found]))
    best = [point for point, place in zip(found, places, strict=True) if place == 0]
    return sorted(best, key=lambda point: -second.oriented(point.cost))


def all_points(run: RecordedRun) -> list[Point]:
    """The run's points; none if it has one objective."""
    second = second_of(run)
    return [] if second is None else points(run, second)


def in_order(run: RecordedRun) -> list[Point]:
    """The points of a run with two metrics, by `pareto.order`: the front first, spread over it."""
    found = all_points(run)
    return [found[place] for place in order(np.array(_oriented(run)).reshape(-1, 2))]


def front_of(run: RecordedRun) -> list[Point]:
    """The run's front; nothing if it has one objective."""
    second = second_of(run)
    return [] if second is None else front(points(run, second), run.objective, second)


def shares_of_area(runs: Sequence[RecordedRun]) -> list[float] | None:
    """Of the hypervolume that the fronts of all runs dominate together, the share of each; None without one.

    The reference has the worst of all points in both metrics. None also unless the runs have the same two metrics.
    """
    second = runs[0].second
    if second is None or any((run.second, run.objective) != (second, runs[0].objective) for run in runs):
        return None
    each = [np.array(_oriented(run)).reshape(-1, 2) for run in runs]
    together = np.concatenate(each)
    if not len(together):
        return None
    reference = (float(together[:, 0].min()), float(together[:, 1].min()))
    whole = hypervolume(together, reference)
    return [hypervolume(points, reference) / whole for points in each] if whole > 0 else None


def _oriented(run: RecordedRun) -> list[tuple[float, float]]:
    """The points of a run with two metrics, higher better in both."""
    second = run.second
    return [(run.objective.oriented(p.value), second.oriented(p.cost)) for p in all_points(run)] if second else []


def reported_second(run: RecordedRun) -> str | None:
    """The name of a second metric that trials report; None if there is none, or it is measured before a trial."""
    measured = run.costs.asked if run.costs else ()
    return run.second.metric if run.second and run.second.metric not in measured else None


def unit_of(name: str) -> str:
    """What a number of the second objective is followed by: a space and a unit, or nothing."""
    return f" {COSTS[name]}" if name in COSTS else ""


def second_value(run: RecordedRun, trial: TrialRecord, epoch: int, name: str) -> float | None:
    """A trial's second objective: as measured before it, or as it reported after this epoch; None if unknown."""
    if run.costs is not None and name in run.costs.asked:
        known = run.costs.of(trial.config)
        return None if known is None else float(getattr(known, name))
    told = trial.epochs[epoch].metrics.get(name) if epoch in trial.epochs else None
    return float(told) if isinstance(told, int | float) and finite(told) else None
