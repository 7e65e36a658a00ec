"""Runs that differ in their seed alone are a group: what groups reached at equal cost, and how surely one is better."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING, Literal

from tuner.foreign_text import in_utf8

if TYPE_CHECKING:
    from tuner.results.run import Run

SURE = 0.05  # a difference by chance alone is less likely than that where one group is called better
_SAME = (
    "study", "metric", "mode", "space", "search", "scheduler", "started_from", "warm_start", "data_fingerprint",
    "function_sources",
)  # fmt: skip
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # where a function lay in memory: another place in each process


@dataclass(frozen=True)
class Group:
    """Runs of one study that differ in nothing but their seed, with their names, in the order of their seeds."""

    name: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """The studies' seeds; None where a run doesn't say."""
        return tuple(run.info.get("seed") for run in self.runs)


@dataclass(frozen=True)
class Difference:
    """Whether the mean of one group is better than another's: a t-test of two sides.

    `difference` is how much better `better` is, in units of the metric, `error` its standard error, `p` the chance that
    a difference as large comes about where there is none; `kind` is "paired" where the same seeds are in both groups,
    else "Welch" (Welch 1947: the variances may differ); `count` is how many pairs, or runs in the smaller group.
    """

    better: str
    worse: str
    difference: float
    error: float
    p: float
    kind: Literal["paired", "Welch"]
    count: int

    @property
    def sure(self) -> bool:
        """Whether the difference is hardly one by chance: p below 0.05."""
        return self.p < SURE

    def __str__(self) -> str:
        """In a sentence without its end."""
        how = f"p = {self.p:.2g}, " + ("paired t-test" if self.kind == "paired" else "Welch's t-test")
        of = f"of {self.count} seeds" if self.kind == "paired" else f"of {self.count} runs or more each"
        told = f"{abs(self.difference):.3g} ± {self.error:.2g}"
        if self.sure:
            return f"{self.better} is better than {self.worse} by {told} ({how} {of})"
        return f"{self.better} and {self.worse} can't be told apart: {told} between them ({how} {of})"


def grouped(runs: Sequence[Run], names: Sequence[str]) -> list[Group]:
    """Runs in groups that differ in their seed alone, in the order of their first runs; `names` are the runs'.

    What belongs to a study is what run.json records of it but for its seed, and the options that it was run with. Two
    runs with the same seed are no two measurements of a group: they make a group each.
    """
    found: dict[str, list[tuple[Run, str]]] = {}
    for run, name in zip(runs, names, strict=True):
        key = _declared(run)
        while any(other.info.get("seed") == run.info.get("seed") for other, _ in found.get(key, [])):
            key += "+"
        found.setdefault(key, []).append((run, name))
    ordered = [sorted(members, key=lambda one: one[0].info.get("seed") or 0) for members in found.values()]
    labels = _labels([[run for run, _ in members] for members in ordered], [members[0][1] for members in ordered])
    return [Group(label, tuple(run for run, _ in members)) for label, members in zip(labels, ordered, strict=True)]


def _declared(run: Run) -> str:
    options = {name: value for name, value in (run.info.get("options") or {}).items() if name not in ("seed", "name")}
    limits = {name: value for name, value in (run.info.get("budget") or {}).items() if name != "disk_gb"}
    compared = {name: value for name, value in (run.info.get("comparable") or {}).items() if name != "seed"}
    trial = _ADDRESS.sub("", str(run.info.get("trial")))
    told = [*(run.info.get(name) for name in _SAME), trial, compared, options, limits]
    return json.dumps(told, sort_keys=True, default=str)


def _labels(groups: Sequence[Sequence[Run]], first_names: Sequence[str]) -> list[str]:
    """A short name for each group: what its algorithm is, where that tells them apart, else its first run's."""
    for described in (
        [_algorithm(members[0].info.get("search")) for members in groups],
        [
            f"{_algorithm(members[0].info.get('search'))}, {_algorithm(members[0].info.get('scheduler'))}"
            for members in groups
        ],
    ):
        if len(groups) > 1 and len(set(described)) == len(groups) and all(len(members) > 1 for members in groups):
            return [str(in_utf8(one)) for one in described]
    return [
        name if len(members) == 1 else f"{name} and {len(members) - 1} more"
        for name, members in zip(first_names, groups, strict=True)
    ]


def _algorithm(declared: str | None) -> str:
    return (declared or "unknown").partition("(")[0]


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of independent values; None of fewer than two."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def difference(
    name: str, values: dict[int | None, float], other_name: str, other_values: dict[int | None, float], mode: str
) -> Difference | None:
    """How much better one of two groups is, given by names and values by seed; None with fewer than two values each.

    Where at least two seeds are in both groups, those are compared in pairs: the same seed starts from the same points.
    """
    sign = 1.0 if mode == "max" else -1.0
    both = [seed for seed in values if seed is not None and seed in other_values]
    if len(both) > 1:
        differences = [sign * (values[seed] - other_values[seed]) for seed in both]
        error, freedom, count = stdev(differences) / math.sqrt(len(both)), len(both) - 1.0, len(both)
        ahead, kind = mean(differences), "paired"
    elif min(len(values), len(other_values)) > 1:
        first, second = list(values.values()), list(other_values.values())
        parts = [stdev(each) ** 2 / len(each) for each in (first, second)]
        error, count = math.sqrt(sum(parts)), min(len(first), len(second))
        weights = [part**2 / (len(each) - 1) for part, each in zip(parts, (first, second), strict=True)]
        freedom = sum(parts) ** 2 / sum(weights) if sum(weights) else 1.0
        ahead, kind = sign * (mean(first) - mean(second)), "Welch"
    else:
        return None
    better, worse = (name, other_name) if ahead >= 0 else (other_name, name)
    chance = _chance(abs(ahead), error, freedom)
    return Difference(better, worse, abs(ahead), error, chance, kind, count)  # type: ignore[arg-type]


def _chance(difference: float, error: float, freedom: float) -> float:
    """Of a difference as large or larger, to either side, where there is none."""
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stdtr(freedom, -difference / error))
