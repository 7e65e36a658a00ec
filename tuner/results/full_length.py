"""What each trial reaches at full length: trials that early stopping ended are not compared by their short curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tuner.history.event_lines import finite
from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.results.importance import Importance, importance
from tuner.space import Config, Space

if TYPE_CHECKING:
    from tuner.results.run import Run
    from tuner.search.gaussian_process import CurveProcess, Rows

Floats = npt.NDArray[np.float64]
MOST_TRIALS = 2000  # more than any of the findings needs; an even choice of them is taken
AT_ONCE = 150  # trials in one model, beside as many of the longest ones
DRAWS = 40  # of what short trials may reach
SHARED, SHARED_LATE = 0.4, 0.5  # of the kernel: more of what is seen early may turn out otherwise than a search assumes
OUTLIER = 4.0  # robust standard deviations, beyond which the model is told no more


@dataclass(frozen=True)
class Outcomes:
    """Configurations and values at full length of the trials that reported, in their order; failed ones don't count.

    `predicted` says which values are the model's: of trials that were shorter. `draws` are values that may be true
    instead [draws, trials]: what the model can't know varies between them.
    """

    trials: tuple[str, ...]
    configs: tuple[Config, ...]
    values: tuple[float, ...]
    predicted: tuple[bool, ...]
    draws: tuple[tuple[float, ...], ...]


def full_outcomes(run: Run) -> Outcomes:
    """The outcomes of a run at the full length of its trials; see `outcomes_at_full_length`."""
    return outcomes_at_full_length(run.record, run.space, run.longest_trial, run.info.get("rungs") or ())


def full_importance(run: Run) -> tuple[Importance, ...]:
    """The hyperparameters by how much they matter for what trials reach at full length, the first the most."""
    found = full_outcomes(run)
    return tuple(importance(run.space, found.configs, found.values, draws=found.draws))


def outcomes_at_full_length(record: RunRecord, space: Space, longest: int, rungs: Sequence[int] = ()) -> Outcomes:
    """The best value of each trial, and for one that early stopping cut short the best that it would have reached.

    Values after 3, 9 and 27 epochs can't be mixed: that a trial was stopped says more of such a value than its
    hyperparameters do. What a short trial would have reached is the mean of a Gaussian process on (configuration,
    epoch), the one that `MultiFidelityGP` searches with, given the best value so far of every trial after each of the
    `rungs` and its last epoch (Swersky et al. 2013). It is never worse than what the trial has reached, and never
    better than the best of the run. Of more than 2,000 trials an even choice is taken.
    """
    reported = [trial for trial, _ in record.reported()]
    if not reported:
        return Outcomes((), (), (), (), ())
    kept = [reported[i] for i in np.unique(np.linspace(0, len(reported) - 1, MOST_TRIALS).astype(int))]
    sign = 1.0 if record.mode == "max" else -1.0
    curves = [_so_far(trial, record.metric, sign) for trial in kept]
    short = np.array([_is_short(trial, longest) for trial in kept], dtype=bool)
    values = np.array([list(curve.values())[-1] for curve in curves])
    configs = [space.project(trial.config) for trial in kept]
    if short.any() and space.dimensions:
        units = np.array([space.encode(config) for config in configs])
        drawn = _expected(space, units, curves, short, _levels(rungs, longest))
        draws = np.tile(values, (len(drawn), 1))
        draws[:, short] = np.clip(drawn, values[short], values.max())
        values[short] = draws[0, short]
    else:
        draws = np.tile(values, (DRAWS + 1, 1))
    told = (sign * values).tolist()
    return Outcomes(
        tuple(trial.trial for trial in kept),
        tuple(configs),
        tuple(told),
        tuple(short.tolist()),
        tuple(map(tuple, (sign * draws[1:]).tolist())),
    )


def _is_short(trial: TrialRecord, longest: int) -> bool:
    """Whether it would have gone on; one that came to its end by itself is as long as it is."""
    return trial.status != "completed" and trial.epoch < full_length(trial.config, longest)


def _so_far(trial: TrialRecord, metric: str, sign: float) -> dict[int, float]:
    """The best value after each epoch that reported a number, higher is better."""
    curve: dict[int, float] = {}
    best = -np.inf
    for epoch in sorted(trial.epochs):
        value = trial.epochs[epoch].metrics.get(metric)
        if finite(value):
            best = max(best, sign * float(value))  # type: ignore[arg-type]
            curve[epoch] = best
    return curve


def _levels(rungs: Sequence[int], longest: int) -> tuple[int, ...]:
    """The epochs that the model looks at."""
    return (*(rungs or [3**k for k in range(20) if 3**k < longest]), longest)


def _expected(
    space: Space, units: Floats, curves: Sequence[dict[int, float]], short: npt.NDArray[np.bool_], levels: Sequence[int]
) -> Floats:
    """What the short trials would reach after the last level [1 + DRAWS, short]: the mean, then draws."""
    from tuner.search.features import Features

    everything = np.concatenate([list(curve.values()) for curve in curves])
    lower, middle, upper = np.percentile(everything, [25, 50, 75])
    unit = float(max((upper - lower) / 1.35, 1e-12))
    points = Features(space).points(units)
    expected = np.empty((DRAWS + 1, int(short.sum())))
    places = np.flatnonzero(short)
    for first, together in _chunks(places, curves):
        rows, values = _told(points, curves, together, levels)
        with np.errstate(over="ignore"):  # infinite ones are clipped as well
            scaled = np.clip((values - middle) / unit, -OUTLIER, OUTLIER)
        process = _process(space, rows, scaled)
        asked = places[first : first + AT_ONCE]
        rows = _rows(points, asked, [levels[-1]] * len(asked), levels[-1])
        expected[0, first : first + AT_ONCE] = process.mean(rows)
        expected[1:, first : first + AT_ONCE] = process.draw(rows, DRAWS, np.random.default_rng(first))
    return np.asarray(middle + unit * expected)


def _chunks(places: npt.NDArray[np.int64], curves: Sequence[dict[int, float]]) -> Iterator[tuple[int, list[int]]]:
    """Short trials, a part of them at a time, with the longest trials of all: they say what is gained by training."""
    longest = sorted(range(len(curves)), key=lambda index: -max(curves[index]))[:AT_ONCE]
    for first in range(0, len(places), AT_ONCE):
        yield first, sorted({*longest, *places[first : first + AT_ONCE].tolist()})


def _told(
    points: Floats, curves: Sequence[dict[int, float]], trials: Sequence[int], levels: Sequence[int]
) -> tuple[Rows, Floats]:
    """The values of some trials at the levels that they reached, and at their last epochs."""
    found = [
        (trial, epoch, value)
        for trial in trials
        for epoch, value in curves[trial].items()
        if epoch in levels or epoch == max(curves[trial])
    ]
    numbers, epochs, values = zip(*found, strict=True)
    return _rows(points, np.array(numbers), epochs, levels[-1]), np.array(values)


def _rows(points: Floats, trials: npt.NDArray[np.int64], epochs: Sequence[int], longest: int) -> Rows:
    from tuner.search.gaussian_process import Rows

    relative = np.log(np.asarray(epochs, dtype=float)) / np.log(max(longest, 2))
    return Rows(points[trials], relative, trials)


def _process(space: Space, rows: Rows, values: Floats) -> CurveProcess:
    from tuner.search.gaussian_process import CurveProcess
    from tuner.search.multi_fidelity import kernel_for

    return CurveProcess(replace(kernel_for(space), shared=SHARED, shared_late=SHARED_LATE), rows, values)
