"""How long a search still takes, with an 80 % interval: from its record, without asking anybody."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.budget import SECONDS_PER_HOUR
from tuner.history.pace import Pace, pace_of
from tuner.history.records import RunRecord, TrialRecord
from tuner.results.text import duration

if TYPE_CHECKING:
    from tuner.results.run import Run

Floats = npt.NDArray[np.float64]
DRAWS = 400  # possible futures
LOW, HIGH = 0.1, 0.9  # quantiles of them
PRIOR_TRIALS = 2.0  # what is expected of lengths before any trial has ended counts like so many that have
PRIOR_SPREAD = 0.35  # of the logarithm of an epoch's time, between configurations that nobody has seen yet
OVER_PROMOTION = 1.1  # how many more than the share of a rung go on at most, relative to it
ALONE = (0.4, 1.4)  # of the longest stretch at the end, which few workers share
DRIFT = 0.1  # of the logarithm of all that is left: what no model knows, such as other work on the machine
CONCLUSION_SECONDS, CONCLUSION_SPREAD = 0.5, 0.6  # tables, winner and report, at least
CONCLUSION_STARTS, SCORING_EPOCHS = 0.6, 0.3  # and of a worker's start, which loads as much; of an epoch, for scoring


@dataclass(frozen=True)
class TimeLeft:
    """Seconds until the report is written: in 80 of 100 searches from `low` to `high`."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        """Such as "about 4 min left (3 to 6 min)"."""
        return f"about {rounded(self.middle)} left ({_span(self.low, self.high)})"


@dataclass(frozen=True)
class Ahead:
    """What a search sets out to do.

    `rungs` are the epochs after which early stopping compares trials, of which one in `reduction_factor` goes on;
    `workers` is how many trials run at once, None where only the record tells; `limits` are those of the budget by
    their names; `devices` is what a running trial holds; `brackets` is true of HyperBand, whose brackets differ.
    """

    trials: int | None
    max_epochs: int
    rungs: tuple[int, ...] = ()
    reduction_factor: float = 3.0
    workers: int | None = None
    limits: Mapping[str, Any] | None = None
    devices: float = 1.0
    brackets: bool = False


def ahead_of(run: Run) -> Ahead:
    """What a run sets out to do, as its folder tells it."""
    rungs = tuple(run.info.get("rungs") or ())
    scheduler = run.info.get("scheduler") or ""
    factor = reduction_factor(scheduler)
    workers, limits = run.info.get("concurrency"), run.budget
    return Ahead(
        limits.get("trials"), run.longest_trial, rungs, factor, workers, limits, run.devices, has_brackets(scheduler)
    )


def reduction_factor(scheduler: str) -> float:
    """The reduction factor in a scheduler's `repr`, 3 where it names none."""
    found = re.search(r"reduction_factor=([0-9.]+)", scheduler)
    return max(1.01, float(found[1])) if found else 3.0


def has_brackets(scheduler: str) -> bool:
    """Whether a scheduler's `repr` is HyperBand's."""
    return scheduler.startswith("HyperBand")


def time_left(record: RunRecord, ahead: Ahead, now: float) -> TimeLeft | None:
    """How long it takes from `now` (seconds since 1970) until the report is written; None where nobody can know.

    That is before the first epoch was reported by the present driver, and where no limit says how much is left. Some
    hundred futures are drawn: how many epochs are left (of trials that pause at rungs, one in `reduction_factor` goes
    on; others are as long as those that have ended), what an epoch of a trial takes (as in trials so far), starts of
    trials, workers without work at the end, scoring, and the report. The interval is their 10 % and 90 % quantiles; how
    often it holds is measured by benchmarks/time_left.py.
    """
    pace = pace_of(record, ahead.workers or 1)
    if pace is None or record.ended is not None:
        return None
    generator = np.random.default_rng([record.epochs(), len(record.trials)])
    futures = _Futures(record, ahead, pace, generator, now)
    found = [seconds for seconds in futures.by_limit() if seconds is not None]
    if not found:
        return None
    low, middle, high = np.quantile(np.min(found, axis=0) + futures.conclusion(), [LOW, 0.5, HIGH])
    return TimeLeft(float(low), float(middle), float(high))


class _Futures:
    """What may follow: each array has an entry for each of DRAWS futures."""

    def __init__(self, record: RunRecord, ahead: Ahead, pace: Pace, generator: np.random.Generator, now: float) -> None:
        self._record, self._ahead, self._pace, self._generator, self._now = record, ahead, pace, generator, now
        self._live = [trial for trial in record.trials.values() if trial.live]
        running = [trial for trial in self._live if trial.status == "running"]
        self._workers = max(1, ahead.workers or len(running), len(running))
        self._new = self._known_epoch_seconds()

    def by_limit(self) -> list[Floats | None]:
        """Seconds until each limit that can be foreseen."""
        limits, record = self._ahead.limits or {}, self._record
        found: list[Floats | None] = [None if self._ahead.trials is None else self._all_trials(self._ahead.trials)]
        rate = self._new / self._workers  # of the wall clock, for each epoch
        if limits.get("hours") is not None:
            left = SECONDS_PER_HOUR * float(limits["hours"]) - self._spent
            found.append(max(0.0, left) + self._generator.random(DRAWS) * self._new)
        if limits.get("total_epochs") is not None:
            found.append(max(0.0, float(limits["total_epochs"]) - record.epochs()) * rate)
        if limits.get("device_hours") is not None:
            left = SECONDS_PER_HOUR * float(limits["device_hours"]) / self._ahead.devices
            left = max(0.0, left - record.running_seconds(self._now)) / self._workers
            found.append(left + self._generator.random(DRAWS) * self._new)
        return found

    def conclusion(self) -> Floats:
        """Seconds of what follows the last trial."""
        noise = np.exp(CONCLUSION_SPREAD * self._generator.standard_normal(DRAWS))
        median = CONCLUSION_SECONDS + CONCLUSION_STARTS * self._pace.opening + SCORING_EPOCHS * self._pace.median_epoch
        return np.asarray(median * noise)

    # Inside

    @property
    def _spent(self) -> float:
        return self._record.wall_seconds + max(0.0, self._now - (self._record.last_time or self._now))

    def _known_epoch_seconds(self) -> Floats:
        """The mean time of an epoch of trials to come: of those that were seen, drawn with replacement."""
        seen = np.array(self._pace.epoch_seconds)
        drawn = seen[self._generator.integers(len(seen), size=(DRAWS, len(seen)))].mean(axis=1)
        doubt = math.hypot(PRIOR_SPREAD / math.sqrt(len(seen)), DRIFT)
        return np.asarray(drawn * np.exp(doubt * self._generator.standard_normal(DRAWS)))

    def _all_trials(self, planned: int) -> Floats:
        """Seconds until every trial has been run: the work shared by the workers, then those that are alone."""
        to_start = max(0, planned - len(self._record.trials))
        starts, epochs, stretch = self._by_quota(to_start) if self._pauses else self._by_length(to_start)
        doubt = math.hypot(0.3 / math.sqrt(len(self._pace.starts)), DRIFT)
        start = self._pace.start_seconds * np.exp(doubt * self._generator.standard_normal(DRAWS))
        begun = sum(min(self._now - since, self._pace.median_epoch) for since in self._since_reports())
        work = np.maximum(0.0, epochs * self._new + starts * start - begun)
        share = ALONE[0] + (ALONE[1] - ALONE[0]) * self._generator.random(DRAWS)
        alone = np.minimum(share * stretch * self._last_epoch_seconds(), work)
        shared = (work + alone * (self._workers - 1)) / self._workers
        return np.asarray(np.maximum(np.maximum(alone, shared), self._stays_under_way()))

    def _stays_under_way(self) -> float:
        """Seconds that the running trials need at least, each at its own pace, until it pauses or ends."""
        levels = (*self._ahead.rungs, self._ahead.max_epochs) if self._pauses else ()
        needed = [0.0]
        for trial, since in zip(self._running, self._since_reports(), strict=True):
            to = next((level for level in levels if level > trial.epoch), trial.epoch + 1)
            own = self._pace.own.get(trial.trial, self._pace.median_epoch)
            needed.append((to - trial.epoch) * own - (self._now - since))
        return max(needed)

    @property
    def _failing(self) -> float:
        """The share of the epochs at which a trial failed."""
        failed = sum(trial.status == "failed" for trial in self._record.trials.values())
        return failed / max(1, self._record.epochs() + failed)

    @property
    def _running(self) -> list[TrialRecord]:
        return [trial for trial in self._live if trial.status == "running"]

    def _last_epoch_seconds(self) -> Floats:
        """What an epoch of one trial takes, which may be a slow one."""
        seen = np.array(self._pace.epoch_seconds)
        return np.asarray(seen[self._generator.integers(len(seen), size=DRAWS)])

    def _since_reports(self) -> list[float]:
        """When each running trial reported last, or was started."""
        return [
            max(trial.running_since or self._now, trial.epochs[trial.epoch].time if trial.epochs else 0.0)
            for trial in self._running
        ]

    @property
    def _pauses(self) -> bool:
        """Whether trials wait at rungs to be promoted."""
        return bool(self._ahead.rungs) and any(
            epoch.decision == "pause" for trial in self._record.trials.values() for epoch in trial.epochs.values()
        )

    def _by_quota(self, to_start: int) -> tuple[Floats, Floats, Floats]:
        """Starts, epochs, and epochs of the longest stretch at the end, where a share goes on at each rung.

        More go on than that share where later trials are better than those that went on before.
        """
        levels = (*self._ahead.rungs, self._ahead.max_epochs)
        trials = list(self._record.trials.values())
        there = np.full(DRAWS, float(to_start + len(trials)))
        starts, epochs, stretch = np.full(DRAWS, float(to_start)), np.zeros(DRAWS), np.zeros(DRAWS)
        before = 0
        for index, level in enumerate(levels):
            reached = sum(trial.epoch >= level for trial in trials)
            lost = sum(before <= trial.epoch < level and trial.status == "failed" for trial in trials)
            under_way = [t for t in self._live if t.status == "running" and before <= t.epoch < level]
            coming = np.maximum(float(len(under_way)), there - reached - lost)
            surviving = (1 - self._failing) ** (level - before)
            epochs += coming * (level - before) * (1 + surviving) / 2 - sum(t.epoch - before for t in under_way)
            starts += coming - len(under_way) if index else 0.0
            stretch = np.where(coming > 0, (level - before) + stretch * self._generator.random(DRAWS), stretch)
            passed = sum(trial.epoch > level for trial in trials)
            there = np.maximum(1.0, self._going_on(passed, reached, coming * surviving))
            before = level
        return starts, epochs, stretch

    def _going_on(self, passed: int, reached: int, coming: Floats) -> Floats:
        """How many trials pass a rung in the end, of those that have reached it and those that are coming."""
        share = 1 / self._ahead.reduction_factor
        if self._ahead.brackets:  # of which the later ones begin at later rungs
            rate = np.clip(share + 0.6 * self._generator.random(DRAWS), 0, 1)
        else:
            rate = share * (1 + OVER_PROMOTION * self._generator.random(DRAWS))
        base = max(passed, math.floor(reached * share))
        quota = np.floor((reached + coming) * share)
        return np.asarray(np.maximum(quota, np.floor(base + coming * rate)))

    def _by_length(self, to_start: int) -> tuple[Floats, Floats, Floats]:
        """The same where trials are as long as those that have ended, or as what early stopping makes of them."""
        lengths, weights = self._lengths()
        fresh = self._drawn(lengths, weights, 0, to_start)
        rest = [
            np.maximum(1.0, self._drawn(lengths, weights, t.epoch, 1)[:, 0]) - t.epoch
            if t.status == "running"
            else np.zeros(DRAWS)
            for t in self._live
        ]
        each = [*rest, *fresh.T]
        epochs = np.sum(each, axis=0) if each else np.zeros(DRAWS)
        stretch = np.max(each, axis=0) if each else np.zeros(DRAWS)
        return np.full(DRAWS, float(to_start)), np.asarray(epochs), np.asarray(stretch)

    def _lengths(self) -> tuple[Floats, Floats]:
        """Lengths that a trial may have, with their weights."""
        ended = [float(trial.epoch) for trial in self._record.ended_trials if not trial.live]
        levels = (*self._ahead.rungs, self._ahead.max_epochs)
        left = self._ahead.reduction_factor ** -np.arange(len(levels), dtype=float)
        prior = PRIOR_TRIALS * np.append(left[:-1] - left[1:], left[-1])
        return np.array([*ended, *levels]), np.append(np.ones(len(ended)), prior)

    def _drawn(self, lengths: Floats, weights: Floats, reached: int, count: int) -> Floats:
        """Lengths [DRAWS, count] of trials that have reached so many epochs."""
        possible = lengths > reached
        if not possible.any():
            return np.full((DRAWS, count), float(reached + 1))
        chances = weights[possible] / weights[possible].sum()
        return np.asarray(self._generator.choice(lengths[possible], size=(DRAWS, count), p=chances))


# As text


def rounded(seconds: float) -> str:
    """A time to no more digits than it has a meaning: 12 s, 4 min, 1 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s" if seconds < 20 else f"{5 * round(seconds / 5)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return duration(600 * round(seconds / 600))


def _span(low: float, high: float) -> str:
    """Two times, with the unit once where it is the same."""
    first, second = rounded(low), rounded(high)
    same = first.split(" ", 1)[1:] == second.split(" ", 1)[1:]
    return f"{first.split(' ')[0]} to {second}" if same and first.count(" ") == 1 else f"{first} to {second}"
