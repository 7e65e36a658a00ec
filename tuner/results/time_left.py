"""How long a search still takes, with an 80 % interval, from its record alone; for displays it is computed rarely."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.history.pace import Pace, pace_of, still_trials
from tuner.history.records import RunRecord
from tuner.results.rest_simulation import PRIOR_SPREAD, Ahead, Rest
from tuner.results.run import RecordedRun
from tuner.results.wording import duration
from tuner.study.budget import SECONDS_PER_HOUR

Floats = npt.NDArray[np.float64]
DRAWS = 400  # possible futures
LOW, HIGH = 0.1, 0.9  # quantiles of the futures
# How much the logarithm of a machine's pace changes in half of the time so far: others may use it, too. To read it from
# the times of epochs was tried, and changed neither how often the interval holds nor its width
PACE_CHANGE = 0.14
EARLY = 0.1  # extra spread, divided by the root of the trials seen: the first ones say little about pace and promotions
SOONER = 0.05  # of the logarithm: simulated and real searches end somewhat sooner than the simulation of their rest
SHORTEST = 0.01  # seconds, so that a logarithm can be taken
REPORT_SECONDS, REPORT_STARTS = 0.8, 0.5  # tables, winner, report: seconds; times a worker's start
SCORING_STARTS, SCORING_EPOCHS = 1.5, 0.3  # the same if the winner is scored on a test split, and times an epoch
CONCLUSION_SPREAD = 0.5  # standard deviation of the logarithm of both
RECKONING_SECONDS = 1.0  # the least between two computations
RECKONING_SHARE = 0.02  # the most of the time spent on them: a search may end a hundred trials a second
AGED = 0.1  # of the time left: a result older than that is replaced, also where the first one, still cold, took long


@dataclass(frozen=True)
class TimeLeft:
    """Seconds until the report is written; in 80 of 100 searches they are between `low` and `high`."""

    low: float
    middle: float
    high: float

    def after(self, seconds: float) -> TimeLeft:
        """The time left after this many more seconds."""
        return TimeLeft(*(max(0.0, value - seconds) for value in (self.low, self.middle, self.high)))

    def __str__(self) -> str:
        """Such as "about 4 min left (3 to 6 min)"."""
        return f"about {rounded(self.middle)} left ({_span(self.low, self.high)})"


def ahead_of(run: RecordedRun) -> Ahead:
    """The plan of a run, from its folder."""
    limits, longest = run.budget, run.longest_trial
    ahead = Ahead(limits.get("trials"), longest, tuple(run.info.get("rungs") or ()), run.info.get("concurrency"))
    return replace(ahead, limits=limits, devices=run.devices).foreseen(run.info.get("forecast") or {})


def time_left(record: RunRecord, ahead: Ahead, now: float) -> TimeLeft | None:
    """How long it takes from `now` (seconds since 1970) until the report is written; None if that can't be known.

    It can't be known before the present driver has reported an epoch, after a pause or the end, and if no limit says
    how much is left. It isn't known either while trials are added to an ended search, whose limits don't count; and if
    a trial stands still, only limits of time, and of epochs while others go on, say when the search ends. The rest of
    the search is simulated some tens of times with its own early stopping, see `tuner.results.rest_simulation`: with
    starts, epochs as long as in trials so far, trials as good and failures as frequent, idle workers at the end. Few
    simulations don't show well how much they differ, and the first trials say little about the next ones: both widen
    the distribution. The report follows, which takes longer if a worker's start took longer, and for images the scoring
    of the winner. The interval is the 10 % and 90 % quantiles: by benchmarks/time_left.py it held at 77 % of the
    moments of simulated searches and at 70 % of those of real ones.
    """
    pace = pace_of(record, ahead.workers or 1)
    if pace is None or record.active_since is None:  # no driver works on the run: it has ended, or was paused
        return None
    if record.confirming.alone:  # its limits don't count
        return None
    generator = np.random.default_rng([record.epochs(), len(record.trials)])
    futures = _Futures(record, ahead, pace, generator, now)
    found = [seconds for seconds in futures.by_limit() if seconds is not None]
    if not found:
        return None
    low, middle, high = np.quantile(np.min(found, axis=0) + futures.conclusion(), [LOW, 0.5, HIGH])
    return TimeLeft(float(low), float(middle), float(high))


class _Futures:
    """Possible futures: each array has an entry for each of DRAWS futures."""

    def __init__(self, record: RunRecord, ahead: Ahead, pace: Pace, generator: np.random.Generator, now: float) -> None:
        self._record, self._ahead, self._pace, self._generator, self._now = record, ahead, pace, generator, now
        self._live = [trial for trial in record.trials.values() if trial.live]
        running = [trial for trial in self._live if trial.status == "running"]
        self._workers = max(1, ahead.workers or len(running), len(running))
        self._new = self._known_epoch_seconds()
        still = still_trials(record, now)
        self._some_stand_still, self._all_stand_still = bool(still), len(still) >= max(1, len(running))
        self._moving = max(1, self._workers - len(still))

    def by_limit(self) -> list[Floats | None]:
        """Seconds until each limit that can be predicted."""
        limits, record = self._ahead.limits or {}, self._record
        endless = self._ahead.trials is None or self._some_stand_still
        found: list[Floats | None] = [None if endless else self._all_trials(self._ahead.trials or 0)]
        rate = self._new / self._moving  # wall-clock time for each epoch
        if limits.get("hours") is not None:
            left = SECONDS_PER_HOUR * float(limits["hours"]) - self._spent
            found.append(max(0.0, left) + self._generator.random(DRAWS) * self._new)
        if limits.get("total_epochs") is not None and not self._all_stand_still:
            found.append(max(0.0, float(limits["total_epochs"]) - record.epochs()) * rate)
        if limits.get("device_hours") is not None:
            left = SECONDS_PER_HOUR * float(limits["device_hours"]) / self._ahead.devices
            left = max(0.0, left - record.running_seconds(self._now)) / self._workers
            found.append(left + self._generator.random(DRAWS) * self._new)
        return found

    def conclusion(self) -> Floats:
        """Seconds of the work after the last trial."""
        noise = np.exp(CONCLUSION_SPREAD * self._generator.standard_normal(DRAWS))
        start, epoch = self._pace.opening, self._pace.median_epoch
        scoring = SCORING_STARTS * start + SCORING_EPOCHS * epoch if self._ahead.scored else 0.0
        return np.asarray((REPORT_SECONDS + REPORT_STARTS * start + scoring) * noise)

    # Inside

    @property
    def _spent(self) -> float:
        return self._record.wall_seconds + max(0.0, self._now - (self._record.last_time or self._now))

    def _known_epoch_seconds(self) -> Floats:
        """The mean time of an epoch of future trials: of past ones, drawn with replacement."""
        seen = np.array(self._pace.epoch_seconds)
        drawn = seen[self._generator.integers(len(seen), size=(DRAWS, len(seen)))].mean(axis=1)
        doubt = math.hypot(PRIOR_SPREAD / math.sqrt(len(seen)), PACE_CHANGE)
        return np.asarray(drawn * np.exp(doubt * self._generator.standard_normal(DRAWS)))

    def _all_trials(self, planned: int) -> Floats:
        """Seconds until every trial has been run."""
        rest = Rest(self._record, self._ahead, self._pace, self._generator, self._now)
        games = np.log(np.maximum(rest.games(planned, self._workers), SHORTEST))
        count = len(games)  # so few don't show well how much they differ
        middle, wider = np.median(games), math.sqrt(1 + 1 / count) * (1 + 0.9 / (count - 1))
        drift = math.hypot(PACE_CHANGE, EARLY / math.sqrt(len(self._pace.own) or 1)) * self._generator.standard_normal(
            DRAWS
        )
        drawn = games[self._generator.integers(count, size=DRAWS)]
        noise = drift * self._generator.standard_normal(DRAWS)
        return np.asarray(np.exp(middle + wider * (drawn - middle) + noise - SOONER))


# As text


def silence_sentence(still: Mapping[str, float]) -> str:
    """Such as "00018 has reported nothing for 7 min (see hung_minutes)", from what `still_trials` found; else empty."""
    if not still:
        return ""
    first = max(still, key=lambda trial: still[trial])
    more = f", {len(still) - 1} more for over {rounded(min(still.values()))}" if len(still) > 1 else ""
    return f"{first} has reported nothing for {rounded(still[first])}{more} (see hung_minutes)"


def features_told(record: RunRecord, now: float) -> dict[str, str]:
    """For each trial that computes features of a frozen backbone, by its id, such as "computing features of
    mobilenet_v2: 240 of 1,200 images, 40 s left".
    """
    found = {}
    for trial, one in record.computing().items():
        done = f"{one.images:,} of {one.total:,} images, {rounded(one.left(now))} left"
        found[trial] = f"computing features of {one.model}: {done}"
    return found


def rounded(seconds: float) -> str:
    """A time with only significant digits: 12 s, 4 min, 1 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s" if seconds < 20 else f"{5 * round(seconds / 5)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return duration(600 * round(seconds / 600))


def _span(low: float, high: float) -> str:
    """Two times, with the unit only once if it is the same."""
    first, second = rounded(low), rounded(high)
    same = first.split(" ", 1)[1:] == second.split(" ", 1)[1:]
    return f"{first.split(' ')[0]} to {second}" if same and first.count(" ") == 1 else f"{first} to {second}"


@dataclass(frozen=True)
class _Reckoned:
    """A result, its time in seconds since 1970, and for how many seconds it is good enough."""

    left: TimeLeft
    at: float
    holds: float


class Reckoning:
    """The time left of one search; between computations the last result counts down with the clock."""

    def __init__(self, seconds: float = RECKONING_SECONDS) -> None:
        self._seconds = seconds
        self._last: _Reckoned | None = None
        self._still: tuple[float, dict[str, float]] = (0.0, {})  # when it was looked for, and what was found

    def forget(self) -> None:
        """Forget the last result: the limits have changed."""
        self._last = None

    def left(self, record: RunRecord, ahead: Ahead, now: float) -> TimeLeft | None:
        """How long the search still takes from `now` on (seconds since 1970); None if that can't be known."""
        last = self._last
        if record.active_since is not None and last is not None and 0 <= now - last.at < last.holds:
            return last.left.after(now - last.at)
        begun = time.thread_time()
        left = time_left(record, ahead, now)
        spent = time.thread_time() - begun
        self._last = None if left is None else _Reckoned(left, now, self._holds(left, spent))
        return left

    def still(self, record: RunRecord, now: float) -> dict[str, float]:
        """What `still_trials` finds, which is looked for as seldom."""
        if not 0 <= now - self._still[0] < self._seconds:
            self._still = now, still_trials(record, now)
        return self._still[1]

    def _holds(self, left: TimeLeft, spent: float) -> float:
        """How long a result that took so many seconds of computing is kept."""
        return max(self._seconds, min(spent / RECKONING_SHARE, AGED * left.middle))
