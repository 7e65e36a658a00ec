"""Groups of runs that only differ in their seed: values at equal cost, and how certain it is that one is better."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

from tuner.results.run import RecordedRun
from tuner.text import in_utf8

SURE = 0.05  # a group is called better if the probability of such a difference by chance is below this
PAIRED = 0.75  # share of the smaller group's seeds in both groups from which on pairs are compared
SHOWN_SEEDS = 3  # of those that several runs of one study have
ROUNDING = 1e-9  # relative to a difference: a smaller spread counts as none
_SAME = (
    "study", "metric", "mode", "space", "search", "scheduler", "started_from", "data_fingerprint",
    "weights_fingerprint", "function_sources",
)  # fmt: skip
_MAY_DIFFER = ("seed", "name", "portfolio")  # of the options
_PORTFOLIO = re.compile(r", portfolio=\w+")  # of `History`, which had no portfolio once: what a run got counts
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # a function's address in memory, which differs between processes


@dataclass(frozen=True)
class Group:
    """Runs of one study that only differ in their seed, with their names, in the order of their seeds.

    `surplus` says that it has runs left over: another group of several has the same study with their seeds.
    """

    name: str
    runs: tuple[RecordedRun, ...]
    surplus: bool = False

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """The studies' seeds; None if a run doesn't say."""
        return tuple(run.info.get("seed") for run in self.runs)


@dataclass(frozen=True)
class Difference:
    """Whether the mean of one group is better than another's: a two-sided t-test.

    `difference` is how much better `better` is, in units of the metric, `error` its standard error, from `low` to
    `high` its 95 % interval. `p` is the probability of a difference at least as large if there is no true one. If there
    are more than two `groups`, p and interval are corrected for the number of pairs (Bonferroni). `kind` is "paired" if
    the same seeds are in both groups, else "Welch" (Welch 1947: the variances may differ); `count` is how many pairs,
    or runs in the smaller group.
    """

    better: str
    worse: str
    difference: float
    error: float
    p: float
    kind: Literal["paired", "Welch"]
    count: int
    low: float = math.nan
    high: float = math.nan
    groups: int = 2

    @property
    def sure(self) -> bool:
        """Whether the difference is significant: p below 0.05."""
        return self.p < SURE

    def __str__(self) -> str:
        """As a sentence without its end."""
        how = f"p = {self.p:.2g}, " + ("paired t-test" if self.kind == "paired" else "Welch's t-test")
        of = f"of {self.count} seeds" if self.kind == "paired" else f"of {self.count} runs or more each"
        pairs = f", for {self.groups} groups" if self.groups > 2 else ""
        told = f"{abs(self.difference):.3g} (95 % interval {self.low:.3g} to {self.high:.3g}; {how} {of}{pairs})"
        if self.sure:
            return f"{self.better} is better than {self.worse} by {told}"
        return f"{self.better} and {self.worse} can't be distinguished: {self.better} is ahead by {told}"


def grouped(runs: Sequence[RecordedRun], names: Sequence[str]) -> list[Group]:
    """Groups of runs that only differ in their seed, in the order of their first runs; `names` are the runs'.

    Runs belong to one study if run.json records the same except for the seed, and the same options. Two runs with the
    same seed are not two independent measurements: each makes its own group.
    """
    found: dict[tuple[str, int], list[tuple[RecordedRun, str]]] = {}
    for run, name in zip(runs, names, strict=True):
        study, place = _declared(run), 0
        while any(other.info.get("seed") == run.info.get("seed") for other, _ in found.get((study, place), [])):
            place += 1
        found.setdefault((study, place), []).append((run, name))
    ordered = [sorted(members, key=lambda one: one[0].info.get("seed") or 0) for members in found.values()]
    labels = _labels([[run for run, _ in members] for members in ordered], [members[0][1] for members in ordered])
    surplus = [place > 0 and len(found[study, 0]) > 1 for study, place in found]
    return [
        Group(label, tuple(run for run, _ in members), is_surplus)
        for label, members, is_surplus in zip(labels, ordered, surplus, strict=True)
    ]


def seeds_told_again(runs: Sequence[RecordedRun], names: Sequence[str]) -> str | None:
    """A sentence without its end about seeds that several runs of one study have; None if there are none."""
    found: dict[tuple[str, int | None], list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        found.setdefault((_declared(run), run.info.get("seed")), []).append(name)
    several = [(seed, same) for (_, seed), same in found.items() if seed is not None and len(same) > 1]
    if not several:
        return None
    told = [f"seed {seed} is in {', '.join(same[:-1])} and {same[-1]}" for seed, same in several[:SHOWN_SEEDS]]
    more = f", and {len(several) - SHOWN_SEEDS} more are in several runs" if len(several) > SHOWN_SEEDS else ""
    return f"{', '.join(told)}{more}: such runs are no independent measurements, so a group has only one of them"


def _declared(run: RecordedRun) -> str:
    options = {name: value for name, value in (run.info.get("options") or {}).items() if name not in _MAY_DIFFER}
    limits = {name: value for name, value in (run.info.get("budget") or {}).items() if name != "disk_gb"}
    compared = {name: value for name, value in (run.info.get("comparable") or {}).items() if name != "seed"}
    trial = _ADDRESS.sub("", str(run.info.get("trial")))
    start = _PORTFOLIO.sub("", str(run.info.get("warm_start"))), "portfolio" in run.record.notice_codes
    told = [*(run.info.get(name) for name in _SAME), *start, trial, compared, options, limits]
    return json.dumps(told, sort_keys=True, default=str)


def _labels(groups: Sequence[Sequence[RecordedRun]], first_names: Sequence[str]) -> list[str]:
    """A short name for each group: its algorithm if that distinguishes the groups, else its first run's name."""
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
    """The standard error of the mean of independent values; None for fewer than two."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def difference(
    name: str,
    values: dict[int | None, float],
    other_name: str,
    other_values: dict[int | None, float],
    mode: str,
    groups: int = 2,
) -> Difference | None:
    """How much better one of two groups is, from names and values by seed; None with fewer than two values each.

    If most seeds are in both groups, these are compared in pairs: the same seed starts from the same points. If the
    best of more than two `groups` was chosen, each pair counts as a test that was made.
    """
    sign = 1.0 if mode == "max" else -1.0
    smaller = min(len(values), len(other_values))
    if smaller < 2:
        return None
    both = [seed for seed in values if seed is not None and seed in other_values]
    kind: Literal["paired", "Welch"] = "paired" if len(both) >= max(2, PAIRED * smaller) else "Welch"
    if kind == "paired":
        test, count = _paired([sign * (values[seed] - other_values[seed]) for seed in both]), len(both)
    else:
        test, count = _welch(*([sign * value for value in each.values()] for each in (values, other_values))), smaller
    better, worse = (name, other_name) if test.ahead >= 0 else (other_name, name)
    pairs = groups * (groups - 1) // 2
    ahead, within = abs(test.ahead), test.within(SURE / pairs)
    p = min(1.0, pairs * test.chance)
    return Difference(better, worse, ahead, test.error, p, kind, count, ahead - within, ahead + within, groups)


@dataclass(frozen=True)
class _Test:
    """A mean difference, its standard error, its degrees of freedom, and the smallest possible p.

    `least` is used if all values are equal: a metric of few images has few possible values, so a spread of 0 is chance.
    """

    ahead: float
    error: float
    freedom: float
    least: float

    @property
    def _alike(self) -> bool:
        return self.error <= ROUNDING * abs(self.ahead)

    @property
    def chance(self) -> float:
        """The chance of a difference at least this large, in either direction, if there is no true difference."""
        from scipy.special import stdtr

        if self.ahead == 0:
            return 1.0
        return self.least if self._alike else float(2 * stdtr(self.freedom, -abs(self.ahead) / self.error))

    def within(self, outside: float) -> float:
        """How far the truth may be from `ahead`; with probability `outside` it is farther away."""
        from scipy.special import stdtrit

        return 0.0 if self._alike else float(stdtrit(self.freedom, 1 - outside / 2)) * self.error


def _paired(differences: Sequence[float]) -> _Test:
    count = len(differences)
    return _Test(mean(differences), stdev(differences) / math.sqrt(count), count - 1.0, 2.0 ** (1 - count))


def _welch(first: Sequence[float], second: Sequence[float]) -> _Test:
    parts = [stdev(each) ** 2 / len(each) for each in (first, second)]
    weights = [part**2 / (len(each) - 1) for part, each in zip(parts, (first, second), strict=True)]
    freedom = sum(parts) ** 2 / sum(weights) if sum(weights) else 1.0
    least = 2 / math.comb(len(first) + len(second), len(first))
    return _Test(mean(first) - mean(second), math.sqrt(sum(parts)), freedom, min(1.0, least))
