"""Learning from earlier studies: the configurations that did best there, chosen so that they complement each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.errors import SpaceError, StudyError, shown
from tuner.search.base import COUNT_RULE, Floats, Problem, is_count
from tuner.search.multi_fidelity import MultiFidelityGPSearcher
from tuner.space import Choice, Config, Domain, Float, Integer, Space
from tuner.space.values import is_number, same

FEWEST_TRIALS = 3  # that a study needs so that something can be learned from it
SHARED = 0.5  # share of the space's dimensions that an earlier study must have searched or set
PLACES = 256  # random configurations that show what values are usual in a study


@dataclass(frozen=True)
class History:
    """Start from what earlier studies found.

    Looks through the runs under the storage folder, or under `path`, of all studies or those named in `studies`. It
    uses runs with the same metric whose trials have at least half of this study's hyperparameters. The best
    configuration of each is a candidate; up to `top` are tried first (half of the budget's trials at most), each chosen
    because it does well in studies where those before it do badly (Wistuba et al. 2015, Sequential Model-Free
    Hyperparameter Tuning). Test scores and failed trials are not used. `studies=()` uses none.

    `portfolio`: after those, start from the defaults of an `ImageClassifier`, moved into the space, then from what
    tuner's own studies, which come with the package, found for accuracy and its hyperparameters. A function's
    hyperparameters are known by their usual names, such as `learning_rate` and `batch_size`, if these are half of them
    or more.
    """

    path: str | None = None
    studies: tuple[str, ...] | None = None
    top: int = 10
    portfolio: bool = True

    def check(self) -> None:
        """Raise StudyError for settings that can't work."""
        if self.path is not None and not isinstance(self.path, str):
            raise StudyError(
                f"History.path needs a folder or URI, got {shown(self.path)}; leave it out for the storage"
            )
        if self.studies is not None and (
            not isinstance(self.studies, list | tuple | set | frozenset)
            or not all(isinstance(name, str) for name in self.studies)
        ):
            raise StudyError(f"History.studies needs a list of names, got {shown(self.studies)}; write ['name']")
        if not is_count(self.top):
            raise StudyError(f"History.top needs {COUNT_RULE}, got {shown(self.top)}; use 10")
        if not isinstance(self.portfolio, bool | None):  # None: in JSON that an earlier version wrote, for True
            raise StudyError(f"History.portfolio needs True or False, got {shown(self.portfolio)}; leave it out")


def start_from_runs(given: History | None, *, history: bool, portfolio: bool | None) -> History | None:
    """The study's starting point, changed by these options; `portfolio=None` keeps the study's own setting."""
    found = given or History(studies=(), portfolio=False)
    kept = found if history else replace(found, studies=())
    kept = kept if portfolio is None else replace(kept, portfolio=portfolio)
    return None if kept.portfolio is False and kept.studies == () else kept


@dataclass(frozen=True)
class EarlierTrial:
    """A trial that did not fail: its configuration, and the metric after each epoch as it was reported."""

    config: Mapping[str, Any]
    curve: Mapping[int, float]


@dataclass(frozen=True)
class EarlierStudy:
    """A run to learn from, under the name that the user knows it by."""

    name: str
    max_epochs: int
    rungs: tuple[int, ...]
    trials: tuple[EarlierTrial, ...]


@dataclass(frozen=True)
class Learned:
    """Configurations to start from, perhaps partial, the most useful first, and the studies that they come from.

    `passed_over` counts the runs that can't be read. Then follow the one made of the trainer's `defaults`, and those of
    the `portfolio`: suggested by the studies that come with tuner.
    """

    configs: tuple[Config, ...] = ()
    studies: tuple[str, ...] = ()
    passed_over: int = 0
    defaults: tuple[Config, ...] = ()
    portfolio: tuple[Config, ...] = ()

    @property
    def starts(self) -> tuple[Config, ...]:
        """All configurations to start from, in their order."""
        return self.configs + self.defaults + self.portfolio

    @property
    def worth_saying(self) -> bool:
        """Whether the user should know of what earlier runs taught."""
        return bool(self.configs or self.passed_over)


def learn(problem: Problem, earlier: Sequence[EarlierStudy], top: int) -> Learned:
    """The configurations from earlier studies to start this one from."""
    if problem.trials is not None:
        top = min(top, problem.trials // 2)
    memories = [_Memory.of(problem, study) for study in earlier if why_unfit(problem, study) is None]
    if not memories or top < 1:
        return Learned()
    candidates = np.array([memory.best for memory in memories])
    regrets = np.array([memory.regrets(candidates) for memory in memories])  # [studies, candidates]
    chosen = greedy(regrets, top)
    distinct = {problem.space.key(memories[index].config): memories[index].config for index in chosen}
    return Learned(tuple(distinct.values()), tuple(memory.name for memory in memories))


def greedy(regrets: Floats, top: int, first: Sequence[int] = ()) -> list[int]:
    """Up to `top` of the candidates, each chosen because it does well in studies where those before it do badly.

    `regrets` [studies, candidates] are from 0 to 1; those that come `first` are chosen already.
    """
    candidates = regrets.shape[1]
    chosen = list(first)
    reached = regrets[:, chosen].min(axis=1, initial=1)
    while len(chosen) < min(top, candidates):
        means = np.minimum(reached[:, None], regrets).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(np.argmin(means)))
        reached = np.minimum(reached, regrets[:, chosen[-1]])
    return chosen


def why_unfit(problem: Problem, study: EarlierStudy) -> str | None:
    """Why nothing is learned from a study, in words; None if something is."""
    space = problem.space
    if not space.dimensions:
        return "this study searches no hyperparameter"
    names = {name for trial in study.trials for name in space.flatten(trial.config)}
    shared = sum(name in names for name in space.dimensions)
    if shared < max(1, SHARED * len(space.dimensions)):
        return f"it has {shared} of this study's {len(space.dimensions)} hyperparameters, and half of them are needed"
    told = _told(space, study)
    inside = sum(_placed(space, trial.config) is not None for trial in told)
    if inside < FEWEST_TRIALS:
        return f"{inside} of its trials lie in this study's space, and {FEWEST_TRIALS} are needed"
    best = moved_inside(space, _best(problem, told).config)
    return None if _can_be_met(space, best) else "its best configuration doesn't meet this study's constraint"


def _told(space: Space, study: EarlierStudy) -> list[EarlierTrial]:
    """The trials that reported something, and whose values don't contradict the space's constants."""
    return [trial for trial in study.trials if trial.curve and _agrees(space, trial.config)]


def _best(problem: Problem, trials: Sequence[EarlierTrial]) -> EarlierTrial:
    return max(trials, key=lambda trial: max(problem.sign * value for value in trial.curve.values()))


class _Memory:
    """An earlier study as seen from another space: its best configuration there, and a model of its values."""

    def __init__(self, name: str, problem: Problem, config: Config, trials: Sequence[tuple[Config, EarlierTrial]]):
        self.name, self.config, self._space = name, config, problem.space
        self.best = np.array(problem.space.encode(config))
        self._model = MultiFidelityGPSearcher(problem, startup=1, candidates=1)
        for number, (placed, trial) in enumerate(trials):
            self._model.adopt(number, placed)
            for epoch, value in trial.curve.items():
                self._model.observe(number, epoch, value)
            self._model.end(number, "completed")
        self._units = np.array([problem.space.encode(placed) for placed, _ in trials])

    @classmethod
    def of(cls, problem: Problem, study: EarlierStudy) -> _Memory:
        """The memory of a study that fits."""
        space = problem.space
        told = _told(space, study)
        inside = [(placed, trial) for trial in told if (placed := _placed(space, trial.config)) is not None]
        earlier = Problem(space, mode=problem.mode, seed=problem.seed, max_epochs=study.max_epochs, rungs=study.rungs)
        return cls(study.name, earlier, moved_inside(space, _best(problem, told).config), inside)

    def regrets(self, units: Floats) -> Floats:
        """How far configurations [n, dimensions] are expected to be behind the study's best: [n].

        0 is as good as the best, 1 as bad as half of all configurations, or worse.
        """
        anywhere = self._space.snap(np.random.default_rng(0).random((PLACES, units.shape[1])))
        expected = self._model.expect(np.vstack([units, self._units, anywhere]))
        found, usual = expected[: len(units)], float(np.median(expected[-PLACES:]))
        best = float(expected[:-PLACES].max())
        return np.clip((best - found) / max(best - usual, 1e-9), 0.0, 1.0)


def _can_be_met(space: Space, config: Config) -> bool:
    """Whether the space's constraint leaves a configuration that has these values."""
    if space.constraint is None:
        return True
    try:
        space.complete(config, np.random.default_rng(0))
    except SpaceError:
        return False
    return True


def _agrees(space: Space, config: Mapping[str, Any]) -> bool:
    """Whether the configuration's values don't contradict the space's constants."""
    flat = space.flatten(config)
    return all(same(flat[name], value) for name, value in space.constants.items() if name in flat)


def _placed(space: Space, config: Mapping[str, Any]) -> Config | None:
    """The part of the configuration that is in the space; None if it has a value outside."""
    flat = space.flatten(config)
    known = {name: flat[name] for name in space.dimensions if name in flat}
    if not all(space.dimensions[name].contains(value) for name, value in known.items()):
        return None
    return space.project(space.unflatten(known))


def moved_inside(space: Space, config: Mapping[str, Any]) -> Config:
    """The configuration with numbers outside of the space moved to its border, and other values outside left out."""
    flat = space.flatten(config)
    moved = {
        name: nearest
        for name, domain in space.dimensions.items()
        if name in flat and (nearest := _nearest(domain, flat[name])) is not _NONE
    }
    return space.project(space.unflatten(moved))


_NONE = object()  # None may be an option


def _nearest(domain: Domain, value: Any) -> Any:
    """The value of the domain that is nearest to a value; _NONE if there is none."""
    if domain.contains(value):
        return domain.coerce(value)
    if isinstance(domain, Float | Integer) and is_number(value):
        return domain.decode(domain.encode(min(max(value, domain.low), domain.high)))
    if isinstance(domain, Choice) and is_number(value):
        numbers = [option for option in domain.options if is_number(option)]
        return min(numbers, key=lambda option: abs(option - value)) if len(numbers) == domain.size else _NONE
    return _NONE
