"""How wide an 80 % interval of the time left has to be, even if everything except the future is known.

    python benchmarks/time_left_limit.py [--searches 8] [--first-seed 0] [--futures 20] [--only KIND ...]

Simulated searches as in benchmarks/time_left.py, with random search, on a machine of their own. At some moments of
each, the rest happens many times over: with other configurations, and other luck of values and times, by the very
process that the search has. From the tenth to the ninetieth percentile of these ends is an interval that holds 80 % of
them, and no model that is told less can have a narrower one. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.time_left import Watched, simulated
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


def end_of(kind: str, seed: int, fork_at: float = np.inf, future: int = 0) -> Watched:
    """The search of a kind and a seed, which goes another way from a moment on."""
    make = partial(Forked, fork_at=fork_at, future=future)
    return simulated(kind, seed, make, Random(), busy=False)


def widths(kind: str, seed: int, futures: int) -> list[float]:
    """Of the narrowest interval at each of MOMENTS, relative to the median time that is left."""
    whole = end_of(kind, seed)
    found = []
    for share in MOMENTS:
        now = whole.first_report + share * (whole.end - whole.first_report)
        left = [end_of(kind, seed, now, future).end - now for future in range(1, futures + 1)]
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
    options = parser.parse_args()
    results = {}
    for kind in options.only:
        seeds = range(options.first_seed, options.first_seed + options.searches)
        found = np.array([widths(kind, seed, options.futures) for seed in seeds])
        each = np.median(found, axis=0).round(2).tolist()
        results[kind] = {f"{share:.0%}": one for share, one in zip(MOMENTS, each, strict=True)}
        results[kind]["all"] = round(float(np.median(found)), 2)
        print(kind, results[kind], flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
