"""Two objectives of a run: each configuration's point, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tuner.errors import RunFolderError
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.scored import FRONT, METRICS, UNSCORED
from tuner.results.run import RecordedRun
from tuner.space.mode import Objective
from tuner.space.pareto import Floats, fronts, hypervolume, knee, order, spread_out
from tuner.study.declaration import Study
from tuner.trial.inference_cost import COSTS, KnownCosts, second_value

MOST = 10  # networks of a front that are kept


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


def points(record: RunRecord, costs: KnownCosts | None, second: Objective) -> list[Point]:
    """A point for each configuration with a value and a known second objective, in the order in which they rank.

    Failed trials have none, as they have no rank.
    """
    ranked = [(one, value_in(costs, second.metric, one.trial, one.worth.epoch)) for one in record.ranked()]
    return [Point(one.trial, one.value, cost) for one, cost in ranked if cost is not None]


def value_in(costs: KnownCosts | None, name: str, trial: TrialRecord, epoch: int) -> float | None:
    """A trial's second objective: as measured before it, or as it reported after this epoch; None if unknown."""
    return second_value(costs, name, trial.config, trial.epochs[epoch].metrics if epoch in trial.epochs else {})


def front(found: Sequence[Point], first: Objective, second: Objective) -> list[Point]:
    """Those points that no other is at least equal to in both, the best in the second objective first."""
    places = fronts(_values(found, first, second))
    best = [point for point, place in zip(found, places, strict=True) if place == 0]
    return sorted(best, key=lambda point: -second.oriented(point.cost))


def all_points(run: RecordedRun) -> list[Point]:
    """The run's points; none if it has one objective."""
    second = second_of(run)
    return [] if second is None else points(run.record, run.costs, second)


def in_order(run: RecordedRun) -> list[Point]:
    """The points of a run with two metrics, by `pareto.order`: the front first, spread over it."""
    found = all_points(run)
    return [found[place] for place in order(_values_of(run))]


def front_of(run: RecordedRun) -> list[Point]:
    """The run's front; nothing if it has one objective."""
    second = second_of(run)
    return [] if second is None else front(points(run.record, run.costs, second), run.objective, second)


def on_front(study: Study, record: RunRecord) -> list[TrialRecord]:
    """The ended trials on the front of a study's two metrics whose networks are kept: all, or the `MOST` most apart.

    Those that still have a network come first. Empty if the study has one metric.
    """
    if study.second is None:
        return []
    first = Objective(study.metric, study.mode)
    ended = [one for one in points(record, study.costs, study.second) if not one.trial.live]
    best = front(ended, first, study.second)
    every = np.ones(len(best), dtype=np.bool_)
    trials = [best[place].trial for place in spread_out(_values(best, first, study.second), every)]
    return sorted(trials, key=lambda trial: not trial.checkpoints)[:MOST]


def _values(found: Sequence[Point], first: Objective, second: Objective) -> Floats:
    """The values [n, 2] of points, higher better in both."""
    return np.array([(first.oriented(one.value), second.oriented(one.cost)) for one in found]).reshape(-1, 2)


class RunAtPoint(RecordedRun):
    """A run with a configuration of its front in the place of its winner: that one's network is loaded and exported."""

    def __init__(self, run: RecordedRun, trial: str) -> None:
        super().__init__(run.folder)
        self._trial = trial
        self.best_folder = f"{FRONT}/{trial}"

    @property
    def best(self) -> TrialRecord:
        """The configuration's trial."""
        return self.record.trials[self._trial]

    @property
    def refit(self) -> None:
        """None: only the winner is trained again."""
        return


def at_point(run: RecordedRun, point: str) -> RecordedRun:
    """The run with a configuration of its front in the place of its winner.

    Args:
        run: with two metrics
        point: "knee", see `pareto.knee`; "cheapest", the best in the second metric; a trial's id; or the best within a
            limit of the second metric, as "latency_ms<=5" (">=" if more is better)

    Raises:
        RunFolderError: there is no such point, or its network wasn't kept.
    """
    found, second = front_of(run) if run.second else [], run.second
    if not found or second is None:
        raise RunFolderError(
            f"point names a configuration on the front of two metrics, got a run without one in {run.path}"
        )
    chosen = _named(found, run.objective, second, point)
    if chosen is None:
        listed = ", ".join(f"{one.trial.trial} ({second.metric} {one.cost:.4g})" for one in found)
        sign = "<=" if second.mode == "min" else ">="
        raise RunFolderError(
            f"point is knee, cheapest, '{second.metric}{sign}NUMBER', or a trial on the front, got {point!r}; choose "
            f"among {listed}"
        )
    if run.best is not None and chosen.trial.trial == run.best.trial:
        return run
    found_at = RunAtPoint(run, chosen.trial.trial)
    scored = found_at.scored(METRICS) or {}
    if not scored or UNSCORED in scored:
        why = f"couldn't be scored ({scored[UNSCORED]})" if scored else "wasn't kept"
        raise RunFolderError(
            f"the network of trial {chosen.trial.trial} {why} in {run.path}; start_from in a new study trains it again"
        )
    return found_at


def _named(found: Sequence[Point], first: Objective, second: Objective, point: str) -> Point | None:
    """The point of a front, the best in the second metric first, that a text names; None if there is none."""
    if point == "knee":
        return found[knee(_values(found, first, second))]
    if point == "cheapest":
        return found[0]
    name, sign, limit = point.partition("<=" if second.mode == "min" else ">=")
    if sign and name.strip() == second.metric:
        with suppress(ValueError):
            within = [one for one in found if second.oriented(one.cost) >= second.oriented(float(limit))]
            return within[-1] if within else None
    return next((one for one in found if one.trial.trial == point.zfill(len(one.trial.trial))), None)


def shares_of_area(runs: Sequence[RecordedRun]) -> list[float] | None:
    """Of the hypervolume that the fronts of all runs dominate together, the share of each; None without one.

    The reference has the worst of all points in both metrics. None also unless the runs have the same two metrics.
    """
    second = runs[0].second
    if second is None or any((run.second, run.objective) != (second, runs[0].objective) for run in runs):
        return None
    each = [_values_of(run) for run in runs]
    together = np.concatenate(each)
    if not len(together):
        return None
    reference = (float(together[:, 0].min()), float(together[:, 1].min()))
    whole = hypervolume(together, reference)
    return [hypervolume(points, reference) / whole for points in each] if whole > 0 else None


def _values_of(run: RecordedRun) -> Floats:
    """The values [n, 2] of the points of a run with two metrics, higher better in both."""
    second = run.second
    return _values(all_points(run) if second else [], run.objective, second or run.objective)


def reported_second(run: RecordedRun) -> str | None:
    """The name of a second metric that trials report; None if there is none, or it is measured before a trial."""
    measured = run.costs.asked if run.costs else ()
    return run.second.metric if run.second and run.second.metric not in measured else None


def unit_of(name: str) -> str:
    """What a number of the second objective is followed by: a space and a unit, or nothing."""
    return f" {COSTS[name]}" if name in COSTS else ""
