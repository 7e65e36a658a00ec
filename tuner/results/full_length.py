"""The value of each trial at full length, so that trials that were stopped early aren't judged by short curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tuner.history.records import RunRecord, Standing, TrialRecord, full_length
from tuner.machine.one_thread import on_one_thread
from tuner.search.multi_fidelity import kernel_for
from tuner.search.points import Features
from tuner.space import Config, Space

if TYPE_CHECKING:
    from tuner.search.gaussian_process import CurveProcess, Rows

Floats = npt.NDArray[np.float64]
MOST_TRIALS = 2000  # more than any finding needs; of more trials an even selection is used
AT_ONCE = 150  # trials in one model, plus as many of the longest ones
DRAWS = 40  # samples of what short trials may reach
SHARED, SHARED_LATE = 0.4, 0.5  # of the kernel: early values may say less about late ones than a search assumes
OUTLIER = 4.0  # robust standard deviations at which values are clipped for the model


@dataclass(frozen=True)
class Outcomes:
    """Configurations and values at full length of the trials that reported, in their order; failed ones don't count.

    `predicted` says which values are the model's: those of shorter trials. `draws` are other possible values [draws,
    trials], which vary as much as the model is uncertain.
    """

    trials: tuple[str, ...]
    configs: tuple[Config, ...]
    values: tuple[float, ...]
    predicted: tuple[bool, ...]
    draws: tuple[tuple[float, ...], ...]


def outcomes_at_full_length(record: RunRecord, space: Space, longest: int, rungs: Sequence[int] = ()) -> Outcomes:
    """The value of each trial, as it ranks; for one that early stopping cut short the best that it would have reached.

    Values after 3, 9 and 27 epochs can't be mixed: when a trial was stopped affects such a value more than its
    hyperparameters do. What a short trial would have reached is the mean of a Gaussian process on (configuration,
    epoch), the one of `MultiFidelityGP`, given the best value so far of every trial after each of the `rungs` and its
    last epoch (Swersky et al. 2013). It is never worse than what the trial has reached, and never better than the
    winner. Of more than 2,000 trials an even selection is used.
    """
    told = _told_by(record)
    if not told.trials:
        return Outcomes((), (), (), (), ())
    short = np.array([_is_short(trial, longest) for trial in told.trials], dtype=bool)
    values = told.reached
    configs = [space.project(trial.config) for trial in told.trials]
    if short.any() and space.dimensions:
        drawn = _Model(space, told, _levels(rungs, longest)).expected(np.flatnonzero(short))
        draws = np.tile(values, (len(drawn), 1))
        draws[:, short] = np.clip(drawn, np.minimum(values[short], told.best), told.best)
        values[short] = draws[0, short]
    else:
        draws = np.tile(values, (DRAWS + 1, 1))
    return Outcomes(
        tuple(trial.trial for trial in told.trials),
        tuple(configs),
        tuple((told.sign * values).tolist()),
        tuple(short.tolist()),
        tuple(map(tuple, (told.sign * draws[1:]).tolist())),
    )


def reached_by(
    record: RunRecord, space: Space, config: Config, longest: int, rungs: Sequence[int]
) -> tuple[float, float] | None:
    """The predicted value at full length of a new trial of this configuration: mean and deviation.

    Both in units of the metric; the deviation includes the uncertainty about the configuration and the difference
    between trials. None if the space has no such configuration, or nothing was reported.
    """
    told = _told_by(record)
    flat = space.flatten(space.project(config))
    if not told.trials or not space.dimensions or not all(name in flat for name in space.active(config)):
        return None
    model = _Model(space, told, _levels(rungs, longest))
    mean, deviation = model.of_new(space.encode(space.project(config)))
    return told.sign * mean, deviation


@dataclass(frozen=True)
class _Told:
    """Trials that reported, with each one's best value so far after its epochs; more is better, by `sign`.

    After the last epoch of one that was trained in full it is the value by which it ranks; `best` is the winner's.
    """

    trials: list[TrialRecord]
    curves: list[dict[int, float]]
    best: float
    sign: float

    @property
    def reached(self) -> Floats:
        """[N], the best value of each."""
        return np.array([list(curve.values())[-1] for curve in self.curves])


def _told_by(record: RunRecord) -> _Told:
    """At most 2,000 trials, evenly selected from those that reported."""
    sign, reported = 1.0 if record.mode == "max" else -1.0, record.reported()
    places = np.unique(np.linspace(0, len(reported) - 1, MOST_TRIALS).astype(int)).tolist()
    told = [reported[place] for place in places] if reported else []
    curves = [_so_far(record, one, sign) for one in told]
    return _Told([one.trial for one in told], curves, sign * (record.winning_value or 0.0), sign)


class _Model:
    """The process of a run's values, scaled so that their interquartile range is that of a standard normal variable."""

    def __init__(self, space: Space, told: _Told, levels: Sequence[int]) -> None:
        self._space, self._curves, self._levels = space, told.curves, levels
        self._features = Features(space)
        units = [space.encode(space.project(trial.config)) for trial in told.trials]
        self._points = self._features.points(np.array(units))
        everything = np.concatenate([list(curve.values()) for curve in told.curves])
        lower, self._middle, upper = np.percentile(everything, [25, 50, 75])
        self._unit = float(max((upper - lower) / 1.35, 1e-12))

    @on_one_thread()
    def expected(self, places: npt.NDArray[np.int64]) -> Floats:
        """The values of trials after the last level [1 + DRAWS, places]: the mean, then draws."""
        found = np.empty((DRAWS + 1, len(places)))
        for first in range(0, len(places), AT_ONCE):
            asked = places[first : first + AT_ONCE]
            process = self._process(asked)
            rows = _rows(self._points[asked], asked, [self._levels[-1]] * len(asked), self._levels[-1])
            found[0, first : first + AT_ONCE] = process.mean(rows)
            found[1:, first : first + AT_ONCE] = process.draw(rows, DRAWS, np.random.default_rng(first))
        return np.asarray(self._middle + self._unit * found)

    @on_one_thread()
    def of_new(self, unit: Floats) -> tuple[float, float]:
        """Mean and standard deviation of a trial that doesn't exist, given by its row of the encoding."""
        point = self._features.points(unit[None])
        near = np.argsort(((self._points - point) ** 2).sum(axis=1))[:AT_ONCE]
        rows = _rows(point, np.array([-1]), [self._levels[-1]], self._levels[-1])
        (mean,), (deviation,) = self._process(near).predict(rows)
        return float(self._middle + self._unit * mean), float(self._unit * deviation)

    def _process(self, asked: npt.NDArray[np.int64]) -> CurveProcess:
        """The process, given these trials and the longest ones of all: those show what training gains."""
        from tuner.search.gaussian_process import CurveProcess

        longest = sorted(range(len(self._curves)), key=lambda index: -max(self._curves[index]))[:AT_ONCE]
        rows, values = self._rows_of(sorted({*longest, *asked.tolist()}))
        with np.errstate(over="ignore"):  # infinite values are clipped as well
            scaled = np.clip((values - self._middle) / self._unit, -OUTLIER, OUTLIER)
        kernel = replace(kernel_for(self._space), shared=SHARED, shared_late=SHARED_LATE)
        return CurveProcess(kernel, rows, scaled)

    def _rows_of(self, trials: Sequence[int]) -> tuple[Rows, Floats]:
        """The values of some trials at the levels that they reached, and at their last epochs."""
        found = [
            (trial, epoch, value)
            for trial in trials
            for epoch, value in self._curves[trial].items()
            if epoch in self._levels or epoch == max(self._curves[trial])
        ]
        numbers, epochs, values = zip(*found, strict=True)
        places = np.array(numbers)
        return _rows(self._points[places], places, epochs, self._levels[-1]), np.array(values)


def _is_short(trial: TrialRecord, longest: int) -> bool:
    """Whether the trial would have gone on; one that ended by itself has its full length."""
    return trial.status != "completed" and trial.epoch < full_length(trial.config, longest)


def _so_far(record: RunRecord, one: Standing, sign: float) -> dict[int, float]:
    """The best value after each epoch that reported a number, higher is better; for several seeds the mean."""
    curve: dict[int, float] = {}
    best = -np.inf
    for epoch, value in record.mean_curve(one.trial):
        best = max(best, sign * value)
        curve[epoch] = best
    if one.trial.status == "completed":
        curve[max(curve)] = sign * one.value
    return curve


def _levels(rungs: Sequence[int], longest: int) -> tuple[int, ...]:
    """The epochs that the model looks at."""
    return (*(rungs or [3**k for k in range(20) if 3**k < longest]), longest)


def _rows(points: Floats, trials: npt.NDArray[np.int64], epochs: Sequence[int], longest: int) -> Rows:
    """Rows of the process for some values; points are given by row."""
    from tuner.search.gaussian_process import Rows

    relative = np.log(np.asarray(epochs, dtype=float)) / np.log(max(longest, 2))
    return Rows(points, relative, trials)
