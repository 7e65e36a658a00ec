"""Simulates the rest of a search with its own clock: its early stopping, for possible results of the trials."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.history.event_lines import finite
from tuner.history.pace import Pace, silence
from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.schedule import Decision, EarlyStopper, NoEarlyStopping
from tuner.schedule.asha import PromotingASHA, StoppingASHA
from tuner.schedule.hyperband import HyperBandStopper

Floats = npt.NDArray[np.float64]
MOST_GAMES, FEWEST_GAMES, STAYS = 40, 4, 1500  # how often the rest is simulated; stays on workers in all games together
MOST_TO_START = 500  # trials that are simulated; with more, the time is extrapolated in proportion
PRIOR_LENGTHS, PRIOR_WHOLE = 2.0, 0.3  # prior of lengths: its weight in trials; its share of full length
PRIOR_TRIALS = 1.0  # weight of the prior of epochs' time, in trials
PRIOR_SPREAD = 0.4  # prior of the logarithm of an epoch's time, between new configurations
START_SPREAD = 0.3  # the same of a start's time
NEAR, CHANGE = 0.3, 0.25  # standard deviations: of a new value from a known one; of a trial's value from rung to rung
FIRST_TRIALS = 16, 3  # that a search algorithm spreads over the space before it learns: at least; for each worker
WORSE, BETTER = -0.2, 0.15  # how much better new trials are than the last ones, until so many are known, and after them
SHIFT = 0.45  # standard deviation of that
RECENT, LEAST_RECENT = 0.5, 6  # the last share of the trials, and number, which shows how the next ones will be
EXTREME = 3.0  # standard deviations beyond which a larger value makes no difference
FAILS = -1  # instead of the epoch that a trial reaches


@dataclass(frozen=True)
class Ahead:
    """The plan of a search.

    `rungs` are the epochs after which early stopping compares trials, of which one in `reduction_factor` goes on;
    `workers` is how many trials run at once, None if only the record shows it; `limits` are those of the budget by
    their names; `devices` is how many a running trial holds; `brackets` is true for HyperBand, whose brackets differ;
    `own_rule` for a scheduler that is neither HyperBand nor ASHA: its ended trials show how long trials will be;
    `scored` if the winner is scored on a test split; `learns` if the search algorithm does, so that trials get better.
    """

    trials: int | None
    max_epochs: int
    rungs: tuple[int, ...] = ()
    workers: int | None = None
    limits: Mapping[str, Any] | None = None
    devices: float = 1.0
    reduction_factor: float = 3.0
    brackets: bool = False
    own_rule: bool = False
    scored: bool = False
    learns: bool = True

    def within(self, limits: Mapping[str, Any]) -> Ahead:
        """With other limits of the budget, by their names."""
        return replace(self, limits={**(self.limits or {}), **limits}, trials=limits.get("trials", self.trials))

    def foreseen(self, forecast: Mapping[str, Any]) -> Ahead:
        """With the fields that `Study.forecast` knows; what a run of an earlier version lacks keeps its default."""
        known = ("reduction_factor", "brackets", "own_rule", "scored", "learns")
        return replace(self, **{name: forecast[name] for name in known if name in forecast})


@dataclass(frozen=True)
class _Past:
    """The history of a trial, as its early stopper got it."""

    time: float
    order: int  # of events at the same time
    what: str
    trial: str
    epoch: int = 0


class Rest:
    """The rest of a search up to a number of trials; `games` simulates it."""

    def __init__(self, record: RunRecord, ahead: Ahead, pace: Pace, generator: np.random.Generator, now: float) -> None:
        self._record, self._ahead, self._pace, self._generator, self._now = record, ahead, pace, generator, now
        self._trials = record.trials
        self._rungs = () if ahead.own_rule else ahead.rungs
        self._promotes = bool(self._rungs) and not _stops(record, self._rungs)
        self._past = sorted(_past(record, self._rungs), key=lambda past: (past.time, past.order))
        self._scores = _scores(record, self._rungs)
        first = [scores[0] for scores in self._scores.values() if scores]
        self._known = len(first)
        self._recent = _last(first)
        computing = (features.left(now) for features in record.computing().values())
        self.features_seconds = max(computing, default=0.0)  # for which trials wait that have no epoch yet
        self._failed = sum(trial.status == "failed" for trial in self._trials.values())
        self._lengths, self._weights = self._known_lengths()
        self._luck, self._chances = 0.0, self._weights  # of a game: luck of all its new trials; weights of the lengths

    def games(self, planned: int, workers: int) -> Floats:
        """Seconds until all of `planned` trials have ended, from one simulation after another."""
        to_start = max(0, planned - len(self._trials))
        played = min(to_start, MOST_TO_START)
        stays = 2 * played + len(self._trials)
        count = min(MOST_GAMES, max(FEWEST_GAMES, STAYS // max(1, stays)))
        longer = to_start / played if played else 1.0
        seconds = [self._game(played, workers).seconds() for _ in range(count)]
        return longer * np.array(seconds)

    def _game(self, to_start: int, workers: int) -> _Game:
        stopper, ready = self._replayed(to_start)
        draw = self._generator
        seen = np.array(self._pace.epoch_seconds)
        slower = math.exp(_doubt(seen) * draw.standard_normal())
        doubt = math.exp(START_SPREAD / math.sqrt(len(self._pace.starts)) * draw.standard_normal())
        failing = draw.gamma(self._failed) / max(1, self._record.epochs()) if self._failed else 0.0
        self._luck = self._drawn_luck()
        self._chances = draw.gamma(self._weights)
        game = _Game(self, stopper, draw, slower * seen, doubt * self._pace.start_seconds, failing, to_start, workers)
        game.ready = ready
        for trial in self._trials.values():
            if trial.status == "running" and trial.due is None:
                game.go_on(trial, silence(trial, self._now))
        return game

    def _replayed(self, to_start: int) -> tuple[EarlyStopper, list[str]]:
        """An early stopper that knows what has happened, and the trials that it has resumed but that don't run yet."""
        stopper = self._stopper(len(self._trials) + to_start)
        ready: list[str] = [trial.trial for trial in self._trials.values() if trial.status == "interrupted"]
        handed_out: list[str] = []
        begun: set[str] = set()
        for past in self._past:
            if past.trial not in begun:  # always first, even if a clock was set back
                stopper.start(past.trial)
                begun.add(past.trial)
            if past.what == "resume":
                _hand_out(stopper, past.trial, handed_out)
            else:
                self._tell(stopper, past)
        waits = {trial.trial for trial in self._trials.values() if trial.status == "paused"}
        return stopper, ready + [trial for trial in handed_out if trial in waits]

    def _tell(self, stopper: EarlyStopper, past: _Past) -> None:
        if past.what == "report":
            scores = self._scores.get(past.trial, [0.0])  # the first rung's may be missing
            rung = sum(rung <= past.epoch for rung in self._rungs) - 1
            stopper.report(past.trial, past.epoch, scores[min(rung, len(scores) - 1)])
        elif past.what == "trust":
            if isinstance(stopper, PromotingASHA):
                stopper.trust(past.trial)
        elif past.what == "end":
            stopper.end(past.trial)

    def _stopper(self, planned: int) -> EarlyStopper:
        rungs, factor = list(self._rungs), self._ahead.reduction_factor
        if not rungs:
            return NoEarlyStopping().build(mode="max", max_epochs=1, can_pause=False, trials=None)
        if self._ahead.brackets:
            return HyperBandStopper(rungs, factor, "max", can_pause=self._promotes, trials=planned)
        return PromotingASHA(rungs, factor, "max", planned) if self._promotes else StoppingASHA(rungs, factor, "max")

    # Properties of trials

    def _drawn_luck(self) -> float:
        """By how much the new trials of a game are better than expected."""
        chance = float(np.std(self._recent)) / math.sqrt(len(self._recent)) if self._recent else 0.0
        spread = math.hypot(SHIFT, chance) if self._ahead.learns else chance
        return spread * float(self._generator.standard_normal())

    def first_score(self, begun: int) -> float:
        """How good a new trial is at the first rung: like one of the last ones, or better if the search learns.

        `begun` is the number of trials that the game has started.
        """
        if not self._recent:
            return float(self._generator.standard_normal())
        seen = self._recent[self._generator.integers(len(self._recent))]
        return float(seen + self._better(begun) + self._luck + NEAR * self._generator.standard_normal())

    def _better(self, begun: int) -> float:
        least, each = FIRST_TRIALS
        if not self._ahead.learns:
            return 0.0
        return BETTER if self._known + begun >= max(least, each * (self._ahead.workers or 1)) else WORSE

    def last_score(self, trial: str) -> float | None:
        """How good a trial was at its last comparison."""
        scores = self._scores.get(trial)
        return scores[-1] if scores else None

    def levels(self, epoch: int, length: int) -> int:
        """The next epoch at which a trial of this length is judged or ends."""
        return next((rung for rung in self._rungs if epoch < rung < length), length)

    def length(self, reached: int, trial: TrialRecord | None) -> int:
        """The maximum length of a trial: as declared, or without rungs that of ended trials."""
        if trial is not None and self._rungs:
            return max(reached + 1, full_length(trial.config, self._ahead.max_epochs))
        possible = self._lengths > reached
        if not possible.any():
            return reached + 1
        chances = self._chances[possible] / self._chances[possible].sum()
        return int(self._generator.choice(self._lengths[possible], p=chances))

    def own_pace(self, trial: str) -> float | None:
        """The time of an epoch of a trial, None if that isn't known."""
        return self._pace.own.get(trial)

    def known(self, trial: str) -> TrialRecord | None:
        """The trial if it was already started in reality."""
        return self._trials.get(trial)

    def _known_lengths(self) -> tuple[Floats, Floats]:
        """Possible lengths of a trial, with their weights."""
        longest = self._ahead.max_epochs
        if self._rungs:
            lengths = [full_length(trial.config, longest) for trial in self._trials.values()]
            return np.array(lengths, dtype=float), np.ones(len(lengths))
        ended = _last([float(trial.epoch) for trial in self._record.ended_trials if not trial.live])
        levels = [*self._ahead.rungs, longest]
        whole = PRIOR_WHOLE * PRIOR_LENGTHS
        prior = [(PRIOR_LENGTHS - whole) / max(1, len(levels) - 1)] * (len(levels) - 1) + [whole]
        return np.array([*ended, *levels], dtype=float), np.array([*np.ones(len(ended)), *prior])


@dataclass
class _Game:
    """One simulation of the rest. `paces` are possible seconds of an epoch, `start` those of a start."""

    rest: Rest
    stopper: EarlyStopper
    draw: np.random.Generator
    paces: Floats
    start: float
    failing: float  # share of the epochs at which a trial fails
    to_start: int
    workers: int
    ready: list[str] = field(default_factory=list)
    clock: float = 0.0
    _busy: list[tuple[float, str, int]] = field(default_factory=list)  # end time, trial, target epoch
    _reached: dict[str, int] = field(default_factory=dict)
    _score: dict[str, float] = field(default_factory=dict)
    _length: dict[str, int] = field(default_factory=dict)
    _pace: dict[str, float] = field(default_factory=dict)
    _new: int = 0

    def seconds(self) -> float:
        """Simulate to the end; returns the seconds."""
        self._fill()
        while self._busy:
            self.clock, trial, epoch = heapq.heappop(self._busy)
            self._arrive(trial, epoch)
            self._fill()
        return self.clock

    def go_on(self, trial: TrialRecord, elapsed: float) -> None:
        """Continue a running trial whose last report was this long ago."""
        self._meet(trial.trial)
        epoch = self._reached[trial.trial]
        starts = not trial.epochs or trial.epochs[epoch].time < (trial.running_since or 0.0)
        start = self.start + self.rest.features_seconds if starts else 0.0
        to = self.rest.levels(epoch, self._length[trial.trial])
        self._leave(trial.trial, to, start - elapsed)

    def _fill(self) -> None:
        while len(self._busy) < self.workers:
            trial = self.ready.pop(0) if self.ready else self.stopper.resumable()
            if trial is None:
                if not self.to_start:
                    self.stopper.more_coming(False)
                    trial = self.stopper.resumable()
                    if trial is None:
                        return
                else:
                    trial = self._begin()
            self._meet(trial)
            self._send(trial, self.start)

    def _begin(self) -> str:
        self.to_start -= 1
        self._new += 1
        self.stopper.start(name := f"new{self._new}")
        return name

    def _meet(self, trial: str) -> None:
        """Draw what is unknown about a trial."""
        if trial in self._reached:
            return
        known = self.rest.known(trial)
        self._reached[trial] = known.epoch if known else 0
        self._length[trial] = self.rest.length(self._reached[trial], known)
        pace = self.rest.own_pace(trial)
        self._pace[trial] = float(self.paces[self.draw.integers(len(self.paces))]) if pace is None else pace
        score = self.rest.last_score(trial)
        if score is not None:
            self._score[trial] = score

    def _send(self, trial: str, start: float) -> None:
        epoch = self._reached[trial]
        to = self.rest.levels(epoch, self._length[trial])
        self._leave(trial, to, start)

    def _leave(self, trial: str, to: int, start: float) -> None:
        """Train a trial to an epoch, or to the one at which it fails, which isn't reported."""
        epochs, pace = to - self._reached[trial], self._pace[trial]
        fails = int(self.draw.geometric(min(self.failing, 0.9))) if self.failing else epochs + 1
        until = self.clock + max(0.05 * pace, start + min(fails, epochs) * pace)
        heapq.heappush(self._busy, (until, trial, FAILS if fails <= epochs else to))

    def _arrive(self, trial: str, epoch: int) -> None:
        if epoch == FAILS:
            self.stopper.end(trial)
            return
        self._reached[trial] = epoch
        before = self._score.get(trial)
        score = (
            self.rest.first_score(self._new) if before is None else before + CHANGE * float(self.draw.standard_normal())
        )
        self._score[trial] = score
        decision = self.stopper.report(trial, epoch, score)
        if epoch >= self._length[trial] or decision is Decision.STOP:
            self.stopper.end(trial)
        elif decision is Decision.CONTINUE:
            self._send(trial, 0.0)


def _last(values: list[float]) -> list[float]:
    """The last ones, which say more about the next ones."""
    return values[-max(LEAST_RECENT, math.ceil(RECENT * len(values))) :]


def _doubt(seconds: Floats) -> float:
    """The standard error of the logarithm of the mean of trials' epochs."""
    logs = np.log(np.maximum(seconds, 1e-9))
    squares = PRIOR_TRIALS * PRIOR_SPREAD**2 + float(((logs - logs.mean()) ** 2).sum())
    return math.sqrt(squares / (PRIOR_TRIALS + len(logs) - 1) / len(logs))


def _stops(record: RunRecord, rungs: tuple[int, ...]) -> bool:
    """Whether trials are judged at rungs without a pause."""
    decisions = [
        epoch.decision for trial in record.trials.values() for number, epoch in trial.epochs.items() if number in rungs
    ]
    return bool(decisions) and "pause" not in decisions


def _past(record: RunRecord, rungs: tuple[int, ...]) -> Iterator[_Past]:
    """The trials' histories as an early stopper got them."""
    for trial in record.trials.values():
        yield _Past(trial.started, 4, "start", trial.trial)
        pauses = [epoch.time for epoch in trial.epochs.values() if epoch.decision == "pause"]
        for rung in rungs:
            if trial.has_value(rung, record.metric):
                at = trial.epochs[rung].time
                if rung == rungs[0] and trial.epochs[rung].decision == "continue":
                    yield _Past(at, 0, "trust", trial.trial)
                yield _Past(at, 1, "report", trial.trial, rung)
        for paused in pauses:
            again = [at for at in trial.entered if at >= paused]
            if again:
                yield _Past(min(again), 3, "resume", trial.trial)
        if not trial.live and trial.ended is not None:
            yield _Past(trial.ended, 2, "end", trial.trial)


def _hand_out(stopper: EarlyStopper, trial: str, handed_out: list[str]) -> None:
    """Let the stopper hand out trials that go on, until it has handed out this one."""
    while trial not in handed_out:
        found = stopper.resumable()
        if found is None:
            return
        handed_out.append(found)
    handed_out.remove(trial)


def _scores(record: RunRecord, rungs: tuple[int, ...]) -> dict[str, list[float]]:
    """How good each trial was at the rungs that it reached, in standard deviations of all trials: higher is better.

    Later rungs only have good trials, so their scores are shifted by how good these were before.
    """
    sign = 1.0 if record.mode == "max" else -1.0
    found: dict[str, list[float]] = {}
    unit = 1.0
    for index, rung in enumerate(rungs):
        there = {
            trial.trial: sign * float(trial.epochs[rung].metrics[record.metric])
            for trial in record.trials.values()
            if trial.has_value(rung, record.metric) and (not index or len(found.get(trial.trial, ())) == index)
        }
        if not there:
            break
        values = np.array(list(there.values()))
        before = np.array([found[trial][-1] for trial in there]) if index else np.zeros(1)
        unit = _spread(values, unit) if len(values) > 2 else unit
        spread = float(before.std()) if index and len(values) > 2 else 1.0
        scores = before.mean() + spread * np.clip((values - np.median(values)) / unit, -EXTREME, EXTREME)
        for trial, score in zip(there, scores.tolist(), strict=True):
            found.setdefault(trial, []).append(score)
    return found


def _spread(values: Floats, otherwise: float) -> float:
    low, high = np.percentile(values, [25, 75])
    found = float(high - low) / 1.35 or float(values.std())
    return found if finite(found) and found > 0 else otherwise
