"""Compares several runs: their winners' values, those at equal cost, and how certain it is that one is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import TYPE_CHECKING

from tuner.errors import RunFolderError
from tuner.results.courses import SECONDS_PER_MINUTE, Point, course_against, value_at
from tuner.results.front import shares_of_area
from tuner.results.groups import Difference, Group, difference, grouped, seeds_told_again, standard_error
from tuner.results.run import RecordedRun
from tuner.results.wording import plural, with_error
from tuner.study.declaration import DISTILLED, SOUP
from tuner.text import in_utf8

if TYPE_CHECKING:
    import pandas as pd


PLACES = 120  # points of a course over time
CAVEAT = "from one run each, which may be the other way round with another seed: compare several seeds of each"
FEW_RUNS = "a single run may be the other way round with another seed: compare several seeds of each"


@dataclass(frozen=True)
class _Reached:
    """What the runs of a group had reached at equal cost."""

    name: str
    values: list[float]

    @property
    def mean(self) -> float:
        return mean(self.values)

    def __str__(self) -> str:
        """The mean with its standard error, if there are several runs."""
        error = standard_error(self.values)
        return f"{self.mean:.4g}" + (f" ± {error:.2g}" if error is not None else "")


@dataclass(frozen=True)
class ComparedRuns:
    """Runs with the same metric; `epochs` is the number that each of them has trained at least.

    `labels` are their names, if these aren't to come from their folders.
    """

    runs: tuple[RecordedRun, ...]
    epochs: int
    labels: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """A row per run: its settings, its cost, its winner's value, and what it would have been after `epochs` epochs.

        If winners have several seeds, also the mean over them with its standard error, and their number. If epochs were
        trained again after interruptions, also how many: `epochs` counts each once. If not all `best/` have the
        winner's own network, also which: that is what was scored on the test images.
        """
        import pandas as pd

        rows, again = [], any(run.record.epochs_again() for run in self.runs)
        shipped = [_shipped(run) for run in self.runs]
        for name, run, ships in zip(self.names, self.runs, shipped, strict=True):
            rows.append(
                {
                    "run": name,
                    "search": in_utf8(run.info["search"]),
                    "scheduler": in_utf8(run.info["scheduler"]),
                    "trials": run.record.configurations,
                    "epochs": run.record.epochs(),
                    **({"epochs trained again": run.record.epochs_again()} if again else {}),
                    "minutes": round(run.record.wall_seconds / 60, 2),
                    run.metric: run.record.winning_value,
                    self.equal_cost: self._after(run),
                    **self._over_seeds(run),
                    **({"in best/": ships or "the winner"} if any(shipped) else {}),
                    **{key: value for key, value in run.best_metrics.items() if key.startswith("test_")},
                }
            )
        return pd.DataFrame(rows)

    @property
    def equal_cost(self) -> str:
        """The name of the column of values at equal cost."""
        return f"{self.runs[0].metric} after {plural(self.epochs, 'epoch')}"

    @property
    def names(self) -> list[str]:
        """The labels; without them the runs' folders, shortened by their common part; all different."""
        if self.labels:
            return list(self.labels)
        paths = [run.path.rstrip("/").split("/") for run in self.runs]
        shared = next((k for k, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1), 0)
        return [in_utf8("/".join(parts[shared:])) for parts in paths]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Runs that only differ in their seed, together."""
        return tuple(grouped(self.runs, self.names))

    @property
    def by_group(self) -> pd.DataFrame:
        """A row per group: its runs, their seeds, mean and standard error of the metric at equal cost, lowest, highest.

        The error is that of the mean over runs; it is missing if there is only one run.
        """
        import pandas as pd

        rows = []
        for group in self.groups:
            values = list(self._values(group).values())
            seeds = ", ".join(str(seed) for seed in group.seeds if seed is not None)
            of_all = (mean(values), standard_error(values), min(values), max(values)) if values else (None,) * 4
            rows.append((group.name, len(group.runs), seeds, *of_all))
        columns = ["group", "runs", "seeds", f"mean {self.equal_cost}", "standard error", "lowest", "highest"]
        return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], "float64"))

    @property
    def over_time(self) -> pd.DataFrame:
        """What groups had reached after so many epochs, up to equal cost: group, epochs, mean, standard error, runs.

        A row counts the runs that had a value by then.
        """
        places = sorted({round(1 + (self.epochs - 1) * k / (PLACES - 1)) for k in range(PLACES)})
        courses = [(group.name, [_against_epochs(run) for run in group.runs], places) for group in self.groups]
        return _means("epochs", courses)

    @property
    def differences(self) -> list[Difference]:
        """How much the best of the groups with several runs is ahead of each other such group at equal cost."""
        told = {group.name: self._values(group) for group in self.groups if not group.surplus}
        known = {name: values for name, values in told.items() if len(values) > 1}
        ranked = sorted(known, key=lambda name: mean(known[name].values()), reverse=self.runs[0].mode == "max")
        mode, tested = self.runs[0].mode, max(2, len(known))
        found = [difference(ranked[0], known[ranked[0]], other, known[other], mode, tested) for other in ranked[1:]]
        return [one for one in found if one is not None]

    @property
    def conclusion(self) -> str:
        """Which is better at equal cost, by how much and how certainly; with one run each it warns.

        It also names seeds that several runs of one study have.
        """
        ranked = self._ranked()
        if not ranked:
            return "no run has reported a value"
        further = [seeds_told_again(self.runs, self.names), self._areas()]
        compared = f"after {plural(self.epochs, 'epoch')} {self._compared(ranked)}"
        return "; ".join([compared, *(one for one in further if one)])

    def _areas(self) -> str | None:
        """What the runs' fronts dominate, if they have two metrics."""
        shares = shares_of_area(self.runs)
        if shares is None:
            aims = {(run.metric, run.second) for run in self.runs}
            fronts = any(run.second for run in self.runs) and len(aims) > 1
            return "their fronts aren't compared, as the runs don't have the same two metrics" if fronts else None
        told = ", ".join(f"{name} {share:.0%}" for name, share in zip(self.names, shares, strict=True))
        return f"of the area that all fronts dominate together, in all their epochs: {told}"

    @property
    def has_groups(self) -> bool:
        """Whether some runs only differ in their seed."""
        return any(len(group.runs) > 1 for group in self.groups)

    def _ranked(self) -> list[_Reached]:
        """What the groups reached at equal cost, the best first; without surplus ones, unless no other has a value."""
        told = [(group, list(self._values(group).values())) for group in self.groups]
        known = [(group, _Reached(group.name, values)) for group, values in told if values]
        counted = [reached for group, reached in known if not group.surplus] or [reached for _, reached in known]
        return sorted(counted, key=lambda reached: reached.mean, reverse=self.runs[0].mode == "max")

    def _compared(self, ranked: Sequence[_Reached]) -> str:
        """The conclusion about what groups reached; those of one run can't be tested."""
        if self.differences:
            alone = ", ".join(f"{one.name} with {one}" for one in ranked if len(one.values) == 1)
            return "; ".join(map(str, self.differences)) + (f"; not tested, as one run each: {alone}" if alone else "")
        best, rest, metric = ranked[0], ranked[1:], self.runs[0].metric
        seeds = any(len(one.values) > 1 for one in ranked)
        if seeds and not rest:
            return f"{best.name} reached {metric} {best}, the mean of {plural(len(best.values), 'seed')}"
        if rest and rest[0].mean == best.mean:
            return f"{best.name} and {rest[0].name} are even at {metric} {best}"
        ahead = f", {abs(best.mean - rest[0].mean):.4g} ahead of {rest[0].name}" if rest else ""
        if not seeds:
            return f"{best.name} has the best {metric}, {best}{ahead}; {CAVEAT}"
        others = "; ".join(f"{one.name} has {one}" for one in rest)
        return f"{best.name} has the best mean {metric}, {best}{ahead}; {others}; {FEW_RUNS}"

    def _values(self, group: Group) -> dict[int | None, float]:
        """The values at equal cost by seed."""
        return {run.info.get("seed"): value for run in group.runs if (value := self._after(run)) is not None}

    @staticmethod
    def _over_seeds(run: RecordedRun) -> dict[str, str]:
        """The value of the winner's configuration with its standard error, if it has several seeds."""
        standing = run.record.standing_of(run.best.trial) if run.best else None
        if standing is None or standing.seeds < 2:
            return {}
        return {f"{run.metric} of the winner's seeds": f"{with_error(standing)} ({standing.seeds})"}

    def _after(self, run: RecordedRun) -> float | None:
        """The value of the winner that a run would have had after `self.epochs` epochs of all its trials together."""
        return value_at(_against_epochs(run), self.epochs)


def compare(runs: Sequence[RecordedRun], labels: Sequence[str] = ()) -> ComparedRuns:
    """Compare runs, with these names; raises RunFolderError unless there are at least two, with the same metric."""
    if len(runs) < 2:
        raise RunFolderError(f"compare needs at least two runs, got {len(runs)}; name another")
    kinds = {f"{run.mode}imises {run.metric}": run for run in runs}
    if len(kinds) > 1:
        told = "; ".join(f"{run.path} {kind}" for kind, run in kinds.items())
        raise RunFolderError(f"compare needs runs of the same metric, got others: {told}; choose runs of one metric")
    return ComparedRuns(tuple(runs), max(1, min(run.record.epochs() for run in runs)), tuple(labels))


def over_minutes(comparison: ComparedRuns) -> pd.DataFrame:
    """What groups had reached after each number of minutes: group, minutes, mean, standard error, runs.

    The minutes are of the whole search with its start-up and waiting, without the pauses in which no driver worked on
    it. A group's rows begin when all of its runs have a value, so that the mean doesn't jump as runs join, and end with
    its longest run; a run that ended before keeps its value. A run without any value is left out.
    """
    courses = [(group.name, *found) for group in comparison.groups if (found := _against_minutes(group)) is not None]
    return _means("minutes", courses).astype({"minutes": "float64"})


def _shipped(run: RecordedRun) -> str:
    """What `best/` has in place of the winner's own network; empty if nothing."""
    if run.refit is not None:
        return "the winner, trained again"
    found = run.average
    if not found or not found.get("in"):
        return ""
    members = len(found["members"])
    if found.get("way") == DISTILLED:
        return f"a student of {plural(members, 'trial')}"
    mean = "the mean weights" if found.get("way") == SOUP else "the average"
    return f"{mean} of {plural(members, 'trial')}" if members > 1 else "the winner, its outputs scaled"


def _against_epochs(run: RecordedRun) -> list[Point]:
    return course_against(run.record, run.leads, "epochs")


def _against_minutes(group: Group) -> tuple[list[list[Point]], list[float]] | None:
    """The courses of its runs, and at which minutes to look at them; None if no run of it has a value."""
    known = [(run, course) for run in group.runs if (course := course_against(run.record, run.leads, "time"))]
    if not known:
        return None
    last = max(max(course[-1][0], run.record.wall_seconds / SECONDS_PER_MINUTE) for run, course in known)
    return [course for _, course in known], _places(max(course[0][0] for _, course in known), last)


def _means(axis: str, courses: Iterable[tuple[str, list[list[Point]], Sequence[float]]]) -> pd.DataFrame:
    """A row for each group, by its name, and place: the mean of its courses that have a value there, with its error."""
    import pandas as pd

    rows = [
        (name, place, mean(values), standard_error(values), len(values))
        for name, of_runs, places in courses
        for place in places
        if (values := [value for course in of_runs if (value := value_at(course, place)) is not None])
    ]
    table = pd.DataFrame(rows, columns=["group", axis, "mean", "standard error", "runs"])
    return table.astype({"mean": "float64", "standard error": "float64"})


def _places(first: float, last: float) -> list[float]:
    return [first + (last - first) * k / (PLACES - 1) for k in range(PLACES)] if first < last else [first]
