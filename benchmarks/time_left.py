"""How often the time left holds: the end of many searches, predicted at many moments of each.

    python benchmarks/time_left.py [--searches 40] [--first-seed 0] [--spaces] [--runs FOLDER ...]

Simulated searches of eight kinds, or of the six spaces of benchmarks/importance.py, by a clock of their own, with real
search algorithm and early stopping; epochs whose time depends on the configuration, starts of workers and trials,
scoring and report; half of the eight kinds' on a machine that others use too. And real runs, given as folders
(benchmarks/real_searches.py makes some): their end is the time of the last file that the search wrote, run.json; those
of less than 30 s are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.importance import SEARCHES, TASKS, study_of
from benchmarks.virtual_search import Times, VirtualSearch
from tuner import (
    ASHA,
    Budget,
    HyperBand,
    HyperOpt,
    MedianStopping,
    MultiFidelityGP,
    NoEarlyStopping,
    Random,
    Study,
    choice,
    load_run,
    loguniform,
)
from tuner.history.events import Event
from tuner.history.records import RunRecord
from tuner.results.rest_simulation import Ahead
from tuner.results.time_left import ahead_of, time_left
from tuner.search.base import SearchAlgorithm

MOMENTS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)  # of the time from the first report to the end
KINDS: dict[str, dict[str, Any]] = {
    "default": {"search": MultiFidelityGP(), "scheduler": ASHA()},
    "default, 8 workers": {"search": MultiFidelityGP(), "scheduler": ASHA(), "workers": 8, "trials": (30, 100)},
    "default, some fail": {"search": MultiFidelityGP(), "scheduler": ASHA(), "failing": 0.02},
    "demo": {
        "search": HyperOpt(),
        "scheduler": ASHA(grace_epochs=2),
        "trials": (10, 11),
        "max_epochs": 5,
        "workers": 2,
    },
    "ASHA by stopping": {"search": Random(), "scheduler": ASHA(rule="stop")},
    "median": {"search": Random(), "scheduler": MedianStopping()},
    "HyperBand": {"search": Random(), "scheduler": HyperBand()},
    "no early stopping": {"search": Random(), "scheduler": NoEarlyStopping()},
}
TRIALS = (20, 50)  # of a search in one of the six spaces
PHASES, SAME, BUSY = 20, 0.8, 0.25  # of a machine that others use too: how long, how alike, spread of the logarithm
SHORTEST, LONGEST_CONCLUSION = 30.0, 300.0  # seconds: later, somebody wrote into the folder again
SPACE = {"lr": loguniform(1e-5, 1e-1), "batch_size": choice([16, 32, 64, 128]), "layers": choice([1, 2, 3])}


def _value(config: dict[str, Any], epoch: int, generator: np.random.Generator) -> float:
    final = 0.9 - 0.05 * (np.log10(config["lr"]) + 3) ** 2 + 0.01 * config["layers"]
    return float(final * (1 - np.exp(-epoch / 4)) + 0.01 * generator.standard_normal())


@dataclass(frozen=True)
class Watched:
    """Events of a search whose end is known, in seconds, and what it set out to do."""

    events: Sequence[Event]
    end: float
    ahead: Ahead
    metric: str = "accuracy"
    mode: str = "max"

    @property
    def first_report(self) -> float:
        """When the first epoch was reported."""
        return float(next(event["time"] for event in self.events if event["event"] == "epoch_reported"))


def simulated(
    kind: str,
    seed: int,
    make: Callable[..., VirtualSearch] = VirtualSearch,
    search: SearchAlgorithm | None = None,
    *,
    busy: bool = True,
) -> Watched:
    """A search of a kind: its times, trials and workers are drawn by the seed.

    `make` and `search` take the place of what it is simulated by, and of the kind's search algorithm. Where `busy`,
    half of them are on a machine that others use too.
    """
    settings = dict(KINDS[kind])
    draw = np.random.default_rng([seed, list(KINDS).index(kind)])
    slope = float(draw.choice([0.0, 0.3, 0.7]))  # 16 images at a time take longer than 128
    layers = float(draw.choice([0.0, 0.3]))
    times, scored = _times(draw, lambda c: (64 / c["batch_size"]) ** slope * (1 + layers * (c["layers"] - 2)))
    workers = settings.get("workers") or int(draw.choice([1, 2, 4]))
    trials = int(draw.integers(*settings.get("trials", (10, 60))))
    study = Study(
        "simulated",
        trial=lambda config: None,
        space=SPACE,
        metric="accuracy",
        mode="max",
        search=search or settings["search"],
        scheduler=settings["scheduler"],
        budget=Budget(trials=trials, max_epochs=settings.get("max_epochs") or int(draw.choice([10, 27]))),
        seed=seed,
    )
    events = make(study, _value, times, workers=workers, seed=seed, failing=settings.get("failing", 0.0)).run()
    if busy and draw.random() < 0.5:
        events = slowed(events, draw)
    return _watched(study, events, workers, scored=scored)


def in_space(
    task: str,
    search: str,
    seed: int,
    trials: int,
    make: Callable[..., VirtualSearch] = VirtualSearch,
    *,
    busy: bool = False,
) -> Watched:
    """A search of benchmarks/importance.py, with two workers; on a machine of its own, or one that others use too.

    The second hyperparameter, such as the batch size, changes how long an epoch takes. `make` is as in `simulated`.
    """
    draw = np.random.default_rng([seed, list(TASKS).index(task), list(SEARCHES).index(search), trials])
    study, slope = study_of(task, search, seed, trials), float(draw.choice([0.0, 0.5, 1.0]))
    times, scored = _times(draw, lambda c: float(np.exp(slope * (study.search_space.encode(c)[1] - 0.5))))
    events = make(study, TASKS[task].curve, times, workers=2, seed=seed).run()
    return _watched(study, slowed(events, draw) if busy else events, 2, scored=scored)


def _times(draw: np.random.Generator, factor: Callable[[dict[str, Any]], float]) -> tuple[Times, bool]:
    """The times of a search, by a configuration's factor, and whether its winner is scored."""
    second = float(np.exp(draw.uniform(np.log(1.0), np.log(120.0))))
    opening, scored = float(draw.uniform(2, 12)), bool(draw.random() < 0.5)
    report = float(draw.uniform(0.5, 1.0)) + 0.5 * opening
    scoring = 1.5 * opening + float(draw.uniform(0.1, 0.6)) * second if scored else 0.0
    times = Times(
        epoch=lambda config: second * factor(config),
        opening=opening,
        start=float(np.exp(draw.uniform(np.log(0.1), np.log(4.0)))),
        conclusion=(report + scoring) * float(np.exp(0.4 * draw.standard_normal())),
        spread_of_trials=float(draw.uniform(0.02, 0.15)),
        spread=float(draw.uniform(0.03, 0.2)),
    )
    return times, scored


def _watched(study: Study, events: Sequence[Event], workers: int, *, scored: bool) -> Watched:
    longest = study.budget.max_epochs
    ahead = Ahead(study.budget.trials, longest, tuple(study.scheduler.rungs(longest)), workers, vars(study.budget))
    return Watched(events[:-1], events[-1]["time"], ahead.foreseen({**study.forecast, "scored": scored}))


def slowed(events: Sequence[Event], generator: np.random.Generator) -> list[Event]:
    """The same on a machine that others use too, on which everything takes now more and now less time."""
    times = np.array([event["time"] for event in events])
    begun = times.min()
    at = np.linspace(begun, times.max(), PHASES + 1)
    logs = BUSY * generator.standard_normal(PHASES)
    for phase in range(1, PHASES):  # the next one is like the last one
        logs[phase] = SAME * logs[phase - 1] + np.sqrt(1 - SAME**2) * logs[phase]
    clock = begun + np.concatenate([[0.0], np.cumsum(np.diff(at) * np.exp(logs))])
    return [{**event, "time": float(np.interp(event["time"], at, clock))} for event in events]


def stored(folder: str) -> Watched | None:
    """A run that was searched in one go; None for another one."""
    run = load_run(folder)
    report = Path(run.path) / "report.html"
    kinds = [event["event"] for event in run.events]
    if kinds.count("study_started") != 1 or "study_resumed" in kinds or run.status != "finished" or not report.exists():
        return None
    updated = datetime.fromisoformat(run.info["updated"]).timestamp()
    end = max(updated, run.events[-1]["time"])
    if end - run.events[0]["time"] < SHORTEST or end - run.events[-1]["time"] > LONGEST_CONCLUSION:
        return None
    return Watched(run.events, end, ahead_of(run), run.metric, run.mode)


@dataclass
class Score:
    """Of the moments at which a time left was given."""

    held: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)  # of the interval, by the time that was left
    errors: list[float] = field(default_factory=list)  # of the middle, the same

    def watch(self, search: Watched) -> None:
        """Ask at each of MOMENTS."""
        first = search.first_report
        for share in MOMENTS:
            now = first + share * (search.end - first)
            left = search.end - now
            known = [event for event in search.events if event["time"] <= now]
            record = RunRecord(search.metric, search.mode, known)
            told = time_left(record, search.ahead, now)
            over = sum(not trial.live for trial in record.trials.values()) == search.ahead.trials
            if told is not None and not over:  # displays say then how long the trials took
                self.held.append(told.low <= left <= told.high)
                self.widths.append((told.high - told.low) / left)
                self.errors.append((told.middle - left) / left)

    @property
    def figures(self) -> dict[str, float]:
        """Share of the intervals that held, their median width, and the median and typical error of the middle."""
        if not self.held:
            return {"moments": 0}
        return {
            "moments": len(self.held),
            "held": round(float(np.mean(self.held)), 3),
            "median_width": round(float(np.median(self.widths)), 3),
            "median_error": round(float(np.median(self.errors)), 3),
            "median_absolute_error": round(float(np.median(np.abs(self.errors))), 3),
        }


def measured(seeds: range, folders: Iterable[str], *, spaces: bool = False) -> Iterator[tuple[str, Score]]:
    """A score for each kind of search, for all of them together, and for the runs in folders.

    With `spaces` for the six spaces instead of the kinds: on machines of their own, and on shared ones.
    """
    if spaces:
        for busy in (False, True):
            where = "shared" if busy else "own machine"
            for_each = {f"{search}, {where}": _in_spaces(search, seeds, busy=busy) for search in SEARCHES}
            yield from _scores(for_each, f"all six spaces, {where}")
    else:
        yield from _scores({kind: map(partial(simulated, kind), seeds) for kind in KINDS}, "all simulated")
    real = Score()
    for folder in folders:
        found = stored(folder)
        if found is not None:
            real.watch(found)
    yield "real runs", real


def _in_spaces(search: str, seeds: range, *, busy: bool) -> Iterator[Watched]:
    for task in TASKS:
        for seed in seeds:
            for trials in TRIALS:
                yield in_space(task, search, seed, trials, busy=busy)


def _scores(searches: Mapping[str, Iterable[Watched]], all_of_them: str) -> Iterator[tuple[str, Score]]:
    together = Score()
    for name, of_a_kind in searches.items():
        score = Score()
        for search in of_a_kind:
            score.watch(search)
        for values in ("held", "widths", "errors"):
            getattr(together, values).extend(getattr(score, values))
        yield name, score
    yield all_of_them, together


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=40, help="of each kind")
    parser.add_argument("--first-seed", type=int, default=0, help="of each kind's searches")
    parser.add_argument("--spaces", action="store_true", help="the six spaces of benchmarks/importance.py")
    parser.add_argument("--runs", nargs="*", default=[], help="folders of runs")
    options = parser.parse_args()
    found = {}
    seeds = range(options.first_seed, options.first_seed + options.searches)
    for kind, score in measured(seeds, options.runs, spaces=options.spaces):
        found[kind] = score.figures
        print(f"{kind}: {score.figures}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
