"""By how much a search's winner is better than what the user would have had without the search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.history.records import TrialRecord, flat_config, full_length
from tuner.history.worth import Worth
from tuner.results.findings import CLEAR, share_error
from tuner.results.full_length import reached_by
from tuner.results.importance import FEWEST_TO_NAME
from tuner.results.run import RecordedRun
from tuner.results.wording import short
from tuner.space import Choice, Domain, Space
from tuner.space.values import same, value_of
from tuner.trial.tasks import SHARES

WITHIN_80 = 1.2816  # 80 % of a normal variable is within so many standard deviations on each side
FIRST, START, DEFAULTS = "the first trial", "what the study starts from", "the trainer's own defaults"
MANY_TIMES = 10.0  # a loss is described as so many times lower from this factor on
NEAR = 0.02  # of a hyperparameter's range: values this close to the default count as the default


@dataclass(frozen=True)
class Gain:
    """How much better the winner is than something else, in units of the metric; more is better.

    `over` names the something else. `trial` is the one that was measured, `epochs` how many of its `full` epochs it was
    trained; None if the value is predicted by the model of the trials, with an 80 % interval from `low` to `high`.
    `times` is how many times smaller a loss is, 0 if `by` says more; `noise` the standard error of `by`, or of the
    logarithm of `times`, 0 if unknown.
    """

    by: float
    over: str
    trial: str | None = None
    epochs: int = 0
    full: int = 0
    low: float = 0.0
    high: float = 0.0
    noise: float = 0.0
    times: float = 0.0

    @property
    def amount(self) -> str:
        """The gain as text, with two digits because more aren't known; empty if there is none."""
        if self.trial is None:
            return f"{self.low:.2g} to {self.high:.2g}" if self.low > 0 else ""
        if self.times:
            return f"{float(f'{self.times:.2g}'):,.0f} times"
        return f"{self.by:.2g}" if self.by > 0 else ""

    @property
    def is_clear(self) -> bool:
        """Whether there is a gain, of more than two standard errors."""
        size = math.log(self.times) if self.times else self.by
        return bool(self.amount) and size >= CLEAR * self.noise

    @property
    def words(self) -> str:
        """The words after the amount."""
        if self.trial is None and self.low <= 0:
            return f"by the model of the trials no better than {self.over} would be"
        if self.trial is None:
            return f"better than {self.over} would be, by the model of the trials (80 % interval; no trial had them)"
        cut = f" (which was trained {self.epochs} of {self.full} epochs)" if self.epochs < self.full else ""
        if self.by <= 0:
            return f"no better than {self.over}{cut}"
        within = "" if self.is_clear else ", which is within the noise"
        return f"{'lower' if self.times else 'better'} than {self.over}{cut}{within}"


@dataclass(frozen=True)
class Gains:
    """The known gains, and of how many `trials` the winner is the best: the best of many also had luck."""

    known: tuple[Gain, ...]
    trials: int

    @property
    def told(self) -> list[tuple[str, str]]:
        """Amounts with the words after them: parts of a sentence, without its end; none for a single trial."""
        parts = [(one.amount, one.words) for one in self.known] if self.trials > 1 else []
        if parts and not parts[0][0]:
            words = parts[0][1]
            parts[0] = ("", words[0].upper() + words[1:])
        return parts

    @property
    def by_luck(self) -> bool:
        """Whether there is a gain, which is partly luck."""
        return any(one.is_clear for one in self.known)


def gains(run: RecordedRun) -> Gains | None:
    """The gains of the search; None without a winner.

    Compared with the trial that was started first, the first configuration of the study's `start_from`, and the
    trainer's own defaults: by a trial that had these values, or nearly; otherwise by the model used for importance, if
    it shows whether they are better or worse. If neither is possible, they are left out. A default of 0 isn't in a
    logarithmic range: its lowest value is used instead, and `over` says so. The gain over the winner itself is 0.
    """
    best = run.best
    standing = run.record.standing_of(best.trial) if best is not None else None
    if best is None or standing is None:
        return None
    reported = [one.trial for one in run.record.reported()]
    first = min(reported, key=lambda trial: trial.number)
    start = next((trial for trial in reported if _is_starting_point(run, trial)), None)
    default = next((trial for trial in reported if _has_defaults(run, trial)), None)
    names: dict[str, list[str]] = {}
    named = DEFAULTS + _moved(run)
    for trial, name in ((first, FIRST), (start, START), (default, named)):
        if trial is not None:
            names.setdefault(trial.trial, []).append(name)
    known = [_measured(run, run.record.trials[trial], best, _named(of_it)) for trial, of_it in names.items()]
    predicted = _predicted(run, standing.value) if default is None else None
    return Gains((*known, *([predicted] if predicted else [])), len(reported))


# Inside


def _named(names: list[str]) -> str:
    """The gain over one trial that is several of the things with which a winner is compared."""
    defaults = [name for name in names[1:] if name.startswith(DEFAULTS)]
    return f"{names[0]}, which had {defaults[0]}" if defaults else names[0]


def _measured(run: RecordedRun, trial: TrialRecord, best: TrialRecord, over: str) -> Gain:
    found, other = run.record.standing_of(best.trial), run.record.standing_of(trial.trial)
    if found is None or other is None:
        return Gain(0.0, over, trial.trial)
    by = _sign(run) * (found.value - other.value)
    noise, times = 0.0 if trial is best else _noise(run, found, other), 0.0
    if run.mode == "min" and 0 < MANY_TIMES * found.value <= other.value:
        times = other.value / found.value
        noise = math.hypot(*((worth.error or 0.0) / worth.value for worth in (found, other)))
    whole = trial.epoch if trial.status == "completed" else full_length(trial.config, run.longest_trial)
    return Gain(by, over, trial.trial, trial.epoch, whole, noise=noise, times=times)


def _noise(run: RecordedRun, one: Worth, other: Worth) -> float:
    """The standard error of the difference: of shares from the number of images, else from variation over epochs."""
    images = run.validation_images
    if run.metric in SHARES and images:
        return math.hypot(*(share_error(worth.value, images) for worth in (one, other)))
    return math.hypot(one.error or 0.0, other.error or 0.0)


def _defaults(run: RecordedRun) -> dict[str, Any]:
    """The trainer's defaults; 0, which isn't in a logarithmic range, becomes the range's lowest value."""
    defaults: dict[str, Any] = run.info.get("defaults") or {}
    return {name: _lowest(run.space.dimensions.get(name)) if _is_below(run, name) else value
            for name, value in defaults.items()}  # fmt: skip


def _is_below(run: RecordedRun, name: str) -> bool:
    return run.info["defaults"][name] == 0 and _lowest(run.space.dimensions.get(name)) > 0


def _lowest(domain: Domain | None) -> float:
    """The lowest value of a logarithmic range; 0 for other domains."""
    return float(getattr(domain, "low", 0.0)) if getattr(domain, "log", False) else 0.0


def _moved(run: RecordedRun) -> str:
    """The defaults that had to be replaced because a range has no 0, in words."""
    moved = [name for name in run.info.get("defaults") or {} if _is_below(run, name)]
    said = " and ".join(f"{short(_lowest(run.space.dimensions[name]))} for a {name} of 0" for name in moved)
    return f" (with {said}, which was not searched)" if moved else ""


def _predicted(run: RecordedRun, value: float) -> Gain | None:
    """The gain over the trainer's defaults by the model, if it shows that they are worse or better."""
    defaults, space = _defaults(run), run.space
    if not defaults or len(run.record.reported()) < FEWEST_TO_NAME:
        return None
    reached = reached_by(run.record, space, space.unflatten(defaults), run.longest_trial, run.info.get("rungs") or ())
    if reached is None:
        return None
    by, within = _sign(run) * (value - reached[0]), WITHIN_80 * reached[1]
    if by - within <= 0 <= by + within:
        return None
    return Gain(by, DEFAULTS + _moved(run), low=by - within, high=by + within)


def _sign(run: RecordedRun) -> float:
    return 1.0 if run.mode == "max" else -1.0


def _is_starting_point(run: RecordedRun, trial: TrialRecord) -> bool:
    """Whether it is the first configuration that the study starts from; older runs don't record it."""
    points = value_of(run.info.get("start_from") or [])
    flat = flat_config(trial.config)
    return bool(points) and all(name in flat and same(flat[name], one) for name, one in flat_config(points[0]).items())


def _has_defaults(run: RecordedRun, trial: TrialRecord) -> bool:
    """Whether each searched hyperparameter is at the trainer's default, or nearly; see `NEAR`."""
    space, defaults = run.space, _defaults(run)
    wanted = space.project(space.unflatten(defaults))
    asked, has = space.flatten(wanted), space.flatten(space.project(trial.config))
    searched = [name for name in has if name in space.dimensions]
    if not searched or any(name not in asked for name in {*searched, *space.active(wanted)}):
        return False
    places = np.abs(np.array(space.encode(wanted)) - np.array(space.encode(space.project(trial.config))))
    near = dict(zip(space.dimensions, places.tolist(), strict=True))
    return all(_is_near(space, name, asked[name], has[name], near[name]) for name in searched)


def _is_near(space: Space, name: str, default: Any, value: Any, apart: float) -> bool:
    return same(value, default) if isinstance(space.dimensions[name], Choice) else apart <= NEAR
