"""How wide an 80 % interval of the time left has to be, even if everything except the future is known.

    python benchmarks/time_left_limit.py [--searches 8] [--first-seed 0] [--futures 20] [--only KIND ...] [--spaces]

Simulated searches as in benchmarks/time_left.py, with random search, on a machine of their own: of its kinds, or in the
six spaces with `ASHA`, for which --searches counts the seeds of each space. At some moments of
each, the rest happens many times over: with other configurations, and other luck of values and times, by the very
process that the search has. From the tenth to the ninetieth percentile of these ends is an interval that holds 80 % of
them, and no model that is told less can have a narrower one. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.importance import TASKS
from benchmarks.time_left import TRIALS, Watched, in_space, simulated
from benchmarks.virtual_search import VirtualSearch
from tuner import Random
from tuner.loop.search_loop import Start

MOMENTS = (0.15, 0.5, 0.85)
SAME_SEARCH = ("default", "default, 8 workers", "demo", "median", "HyperBand", "no early stopping")


@dataclass
class Forked(VirtualSearch):
    """A search that from the moment `fork_at` on goes another way, numbered by `future`."""

    fork_at: float = np.inf
    future: int = 0
    _other: dict[str, dict[str, Any]] = field(default_factory=dict)
    _old: set[str] = field(default_factory=set)
    _forked: bool = False

    def _begin(self, start: Start) -> None:
        if not self._forked:
            self._old.add(start.trial)
        elif start.trial not in self._old:
            generator = np.random.default_rng([self.future, start.number])
            config = self._other.setdefault(start.trial, self.study.search_space.sample(generator))
            start = replace(start, config=config)
        super()._begin(start)

    def _report(self, start: Start, epoch: int, pace: float) -> None:
        if not self._forked and self.clock >= self.fork_at:
            self._forked, self.seed = True, 10_000 + self.future
            self._generator = np.random.default_rng([self.future, 99])
        super()._report(start, epoch, pace)


Search = Callable[[Callable[..., VirtualSearch]], Watched]


def of_kind(kind: str, seed: int, make: Callable[..., VirtualSearch]) -> Watched:
    """The search of a kind and a seed."""
    return simulated(kind, seed, make, Random(), busy=False)


def of_space(task: str, seed: int, trials: int, make: Callable[..., VirtualSearch]) -> Watched:
    """The search of a space and a seed."""
    return in_space(task, "random, early stopping", seed, trials, make)


def searches(kinds: Iterable[str], seeds: range, *, spaces: bool) -> dict[str, list[Search]]:
    """What to measure, by the names of rows."""
    if spaces:
        return {
            f"six spaces, {trials} trials": [partial(of_space, task, seed, trials) for task in TASKS for seed in seeds]
            for trials in TRIALS
        }
    return {kind: [partial(of_kind, kind, seed) for seed in seeds] for kind in kinds}


def widths(search: Search, futures: int) -> list[float]:
    """Of the narrowest interval at each of MOMENTS, relative to the median time that is left.

    The search goes another way from the moment on, as often as there are `futures`.
    """
    whole = search(VirtualSearch)
    found = []
    for share in MOMENTS:
        now = whole.first_report + share * (whole.end - whole.first_report)
        ways = (partial(Forked, fork_at=now, future=future) for future in range(1, futures + 1))
        left = [search(way).end - now for way in ways]
        low, middle, high = np.quantile(left, [0.1, 0.5, 0.9])
        found.append(float((high - low) / middle))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=8, help="of each kind")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--futures", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=SAME_SEARCH, default=SAME_SEARCH)
    parser.add_argument("--spaces", action="store_true", help="the six spaces of benchmarks/importance.py")
    options = parser.parse_args()
    results = {}
    seeds = range(options.first_seed, options.first_seed + options.searches)
    for kind, of_a_kind in searches(options.only, seeds, spaces=options.spaces).items():
        found = np.array([widths(search, options.futures) for search in of_a_kind])
        each = np.median(found, axis=0).round(2).tolist()
        results[kind] = {f"{share:.0%}": one for share, one in zip(MOMENTS, each, strict=True)}
        results[kind]["all"] = round(float(np.median(found)), 2)
        print(kind, results[kind], flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
