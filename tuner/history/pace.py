"""How fast trials are: the time of an epoch, and the time before the first epoch of a stay on a worker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from tuner.history.event_lines import finite
from tuner.history.records import RunRecord, TrialRecord

TYPICAL_EPOCHS = 2.0  # weight of the other trials in the expected time of a trial's epochs
FIRST_EPOCH = 0.6  # share of the time until the first report that the epoch takes, and not the start of its worker
FURTHER_START = 0.3  # share of a worker's first start that later ones take, until one was measured
MOST_OF_MEDIAN = 4.0  # times the median epoch of a trial: longer epochs are cut to that
RECENT = 20  # the newest trials: earlier ones say less about the next ones
LAST_EPOCHS = 12  # epochs of a trial that show how fast it is now
STILL, STILL_SECONDS = 5.0, 60.0  # a trial stands still after so many times the longest epoch, and so many seconds


@dataclass(frozen=True)
class Pace:
    """Seconds: of an epoch in each of the trials seen, and of each start of a stay beyond its first epoch.

    `own` is the expected time of a further epoch of each trial, by its id; `opening` the start of a worker, which loads
    libraries: the longest of the first ones, because the longest of all may only be a slow epoch.
    """

    epoch_seconds: tuple[float, ...]
    starts: tuple[float, ...]
    own: Mapping[str, float]
    opening: float = 0.0

    @property
    def median_epoch(self) -> float:
        """The median of the trials' epochs."""
        return median(self.epoch_seconds)

    @property
    def start_seconds(self) -> float:
        """Time of a start; the first ones, in which workers themselves started, don't count if there are others."""
        return median(self.starts)


def pace_of(record: RunRecord, workers: int = 1) -> Pace | None:
    """The pace of the trials that ran last; None before a trial of the present driver has reported.

    The first start of each of the `workers` includes that of its process, which happens only once.
    """
    begun = record.active_since or 0.0
    recent = sorted(record.trials.values(), key=lambda trial: -(trial.epochs[trial.epoch].time if trial.epochs else 0))
    recent = [t for t in recent if t.epochs and t.epochs[t.epoch].time >= begun]
    earliest = sorted(recent, key=lambda trial: trial.number)[:workers]
    recent = recent[:RECENT]
    seen = [_stays(trial) for trial in recent]
    own = {trial.trial: _mean_gap(gaps) for trial, (_, gaps) in zip(recent, seen, strict=True) if gaps}
    stays = sorted((stay for found, _ in seen for stay in found), key=lambda stay: stay.entered)
    cold = workers if len(record.trials) <= RECENT else 0  # the first stays of all, in which workers themselves start
    if not own:
        told = [seconds for trial in recent if (seconds := _told_seconds(trial))]
        return _first_pace(stays[:cold], stays[cold:], told) if stays else None
    typical = median(own.values())
    starts = [max(0.0, stay.first - own.get(stay.trial, typical)) for stay in stays]
    begun_warm = [max(0.0, stay.warm - own.get(stay.trial, typical)) for stay in stays]
    openings = [first - own.get(trial.trial, typical) for trial in earliest for first in stay_times(trial)[0][:1]]
    opening = max([0.0, *openings])
    further = tuple(starts[cold:]) or (min([FURTHER_START * min(starts, default=0.0), *begun_warm]),)
    expected = {
        trial.trial: _shrunk(own[trial.trial], len(gaps), typical)
        for trial, (_, gaps) in zip(recent, seen, strict=True)
        if gaps
    }
    return Pace(tuple(own.values()), further, expected, opening)


def _shrunk(own: float, epochs: int, typical: float) -> float:
    """The expected time of a trial's further epochs: one or two epochs say less of them than those of other trials."""
    if min(own, typical) <= 0:
        return own
    return math.exp((epochs * math.log(own) + TYPICAL_EPOCHS * math.log(typical)) / (epochs + TYPICAL_EPOCHS))


def _first_pace(cold: Sequence[_Stay], warm: Sequence[_Stay], told: Sequence[float]) -> Pace:
    """What the first reports say, which come a start and an epoch after the trials, on workers that start and others.

    `told` are the seconds of epochs that trials say; with the features of a frozen backbone they may be too many.
    """
    first, shortest = (median(stay.first for stay in found) for found in (cold or warm, warm or cold))
    begun = median(stay.warm for stay in (warm or cold))
    epoch = min(FIRST_EPOCH * shortest, begun, median(told) if told else math.inf)
    further = shortest - epoch if warm else min(FURTHER_START * (first - epoch), begun - epoch)
    return Pace((epoch,), (further,), {}, first - epoch)


def _told_seconds(trial: TrialRecord) -> float | None:
    """How long the trial's last epoch took, by its own metric `seconds`; None if it has none."""
    seconds: Any = trial.metrics().get("seconds")
    return float(seconds) if finite(seconds) and seconds > 0 else None


def _mean_gap(gaps: Sequence[float]) -> float:
    """The expected time of the next epochs: slow ones count, but not a machine that slept."""
    last = gaps[-LAST_EPOCHS:]
    longest = MOST_OF_MEDIAN * median(last)
    return fmean(min(gap, longest) for gap in last)


@dataclass(frozen=True)
class _Stay:
    """A stay of a trial on a worker that reported, and seconds until the first report there.

    `first` counts from when the trial was sent there, `warm` from when its code began, as far as that is known.
    """

    trial: str
    entered: float
    first: float
    warm: float


def stay_times(trial: TrialRecord) -> tuple[list[float], list[float]]:
    """Seconds from each start on a worker to the first report there, and between reports of the same stay."""
    stays, gaps = _stays(trial)
    return [stay.first for stay in stays], gaps


def _stays(trial: TrialRecord) -> tuple[list[_Stay], list[float]]:
    stays: list[_Stay] = []
    gaps: list[float] = []
    starts = sorted(trial.entered)
    times = sorted(epoch.time for epoch in trial.epochs.values())
    for index, time in enumerate(times):
        before = times[index - 1] if index else float("-inf")
        entered = max((start for start in starts if start <= time), default=None)
        if entered is not None and entered >= before:
            began = max((start for start in trial.began if start <= time), default=entered)
            stays.append(_Stay(trial.trial, entered, time - entered, time - max(entered, began)))
        elif index:
            gaps.append(time - before)
    return stays, gaps


def still_trials(record: RunRecord, now: float) -> dict[str, float]:
    """Running trials that have reported nothing for several times the longest epoch so far, and for how many seconds.

    The first epoch of a stay counts with its start; before any epoch was reported, nobody knows what is long.
    """
    if record.active_since is None:
        return {}
    running = (t for t in record.trials.values() if t.status == "running" and t.due is None)
    silent = {t.trial: seconds for t in running if (seconds := silence(t, now)) > STILL_SECONDS}
    if not silent:
        return {}
    longest = _longest_epoch(record, max(silent.values()) / STILL)
    return {trial: seconds for trial, seconds in silent.items() if seconds > STILL * longest}


def silence(trial: TrialRecord, now: float) -> float:
    """Seconds since the last report of a running trial, or since it came to its worker, without those of features."""
    began = now if trial.running_since is None else trial.entered[-1]
    return now - (max(began, trial.epochs[trial.epoch].time) if trial.epochs else began)


def _longest_epoch(record: RunRecord, enough: float) -> float:
    """Seconds of the longest epoch so far, or of one that took `enough`; infinite if there is none."""
    longest = 0.0
    for trial in reversed(record.trials.values()):
        longest = max(longest, *(seconds for times in stay_times(trial) for seconds in times), 0.0)
        if longest >= enough:
            break
    return longest or math.inf


def start_seconds(trial: TrialRecord, typical: float | None = None) -> float:
    """How long the trial's starts on workers took: by how much the first report of a stay came later than an epoch
    takes.

    `typical` is the time of an epoch, used if the trial itself never had two in a row. A stay that has reported nothing
    counts up to where its worker said that it began, as far as that is known.
    """
    firsts, gaps = stay_times(trial)
    epoch = median(gaps) if gaps else typical
    return 0.0 if epoch is None else sum(max(0.0, first - epoch) for first in firsts)


def typical_epoch(trials: Sequence[TrialRecord]) -> float | None:
    """The median time of an epoch, None if no trial had two in a row."""
    gaps = [gap for trial in trials for gap in stay_times(trial)[1]]
    return median(gaps) if gaps else None
