"""Optuna's samplers, as ask and tell on our own spaces. Needs the optuna package, the extra `[optuna]`."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.errors import StudyError, describe_error, shown
from tuner.search.base import Problem, SearchAlgorithm, Searcher, check_model_based
from tuner.search.observations import CurveSearcher
from tuner.space import Choice, Config, Space
from tuner.space.values import is_one_of

SAMPLERS = ("TPESampler", "GPSampler", "RandomSampler")  # their suggestions depend only on the trials
REHEARSED = 12  # trials: more than TPE draws at random by default
TPE_OPTIONS = {"multivariate": True, "group": True, "constant_liar": True, "n_startup_trials": 10}


@dataclass(frozen=True)
class Optuna(SearchAlgorithm):
    """A sampler of Optuna, by its class's name: TPESampler, GPSampler or RandomSampler; needs the extra `optuna`.

    `sampler` is the name, `options` are for the class's constructor. TPE is multivariate and spreads parallel trials
    unless `options` say otherwise. A trial counts with the best value it has reported so far, also while it runs or is
    paused; a failed one with the worst that any trial has. A new sampler is made for each suggestion, seeded by study
    and trial, and receives all trials, so that a search can be repeated and resumed; samplers that keep a state between
    suggestions (CMA-ES, quasi-Monte Carlo) are therefore not supported.
    """

    sampler: str = "TPESampler"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[str, ...]:
        """The library itself."""
        return ("optuna",)

    def check(self, space: Space) -> None:
        """Raise StudyError if the sampler or a domain is not supported, or the library is missing."""
        check_model_based("Optuna", space)
        if not is_one_of(self.sampler, SAMPLERS):
            raise StudyError(
                f"Optuna.sampler needs one of {', '.join(SAMPLERS)}, got {shown(self.sampler)}; use 'TPESampler'"
            )
        if not isinstance(self.options, Mapping) or "seed" in self.options:
            raise StudyError(
                f"Optuna.options needs a dict of the sampler's options without a seed, got {shown(self.options)}; "
                "the study has the seed"
            )
        if importlib.util.find_spec("optuna") is None:
            raise StudyError("search=Optuna() needs the optuna package, which is missing; pip install 'optuna>=5,<6'")
        try:
            self._rehearse(space)
        except Exception as error:  # options go to the sampler unchecked: any error is possible
            raise StudyError(
                f"Optuna.options needs to fit {self.sampler}, got {shown(self.options)} ({describe_error(error)}); "
                "see the sampler's documentation"
            ) from error

    def build(self, problem: Problem) -> Searcher:
        """The searcher for one search."""
        return OptunaSearcher(problem, self)

    def _rehearse(self, space: Space) -> None:
        """Ask for a suggestion, of TPE also one that follows from trials; it takes some milliseconds."""
        searcher, generator = OptunaSearcher(Problem(space), self), np.random.default_rng(0)
        searcher.suggest(0)
        for number in range(REHEARSED if self.sampler == "TPESampler" else 0):
            searcher.adopt(number, space.decode(generator.random(len(space.dimensions))))
            searcher.observe(number, 1, float(number))
        searcher.suggest(REHEARSED)

    def create_sampler(self, seed: int) -> Any:
        """The sampler, without Optuna's warnings about experimental features."""
        import warnings

        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        defaults = TPE_OPTIONS if self.sampler == "TPESampler" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return getattr(optuna.samplers, self.sampler)(**{**defaults, **self.options, "seed": seed})


class OptunaSearcher(CurveSearcher):
    """Gives all trials to a fresh Optuna study for each suggestion.

    Numbers are searched in the unit cube of the space, which carries scale, quantisation and distribution; categories
    by their index. A trial lacks what isn't part of its configuration.
    """

    def __init__(self, problem: Problem, settings: Optuna) -> None:
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        super().__init__(problem)
        self._settings = settings
        self._distributions = {
            name: CategoricalDistribution(tuple(range(int(domain.size))))
            if isinstance(domain, Choice)
            else FloatDistribution(0.0, 1.0)
            for name, domain in self._space.dimensions.items()
        }

    def suggest(self, number: int, attempt: int = 0) -> Config | None:
        """The sampler's suggestion after the trials so far; another attempt has another seed."""
        import optuna

        if not self._space.dimensions:
            return self._space.decode([])
        seed = int(np.random.SeedSequence([self._problem.seed, number, attempt]).generate_state(1)[0])
        study = optuna.create_study(direction="maximize", sampler=self._settings.create_sampler(seed))
        values = self._values()
        study.add_trials([self._as_optuna(trial, values.get(trial)) for trial in self._units])
        trial = study.ask()
        unit = np.full(len(self._distributions), math.nan)
        for column, name in enumerate(self._distributions):
            if name in self._space.active(self._space.decode(unit)):
                unit[column] = self._ask(trial, name)
        return self._space.decode(unit)

    def _ask(self, trial: Any, name: str) -> float:
        domain = self._space.dimensions[name]
        if isinstance(domain, Choice):
            return (float(trial.suggest_categorical(name, range(domain.size))) + 0.5) / domain.size
        return float(trial.suggest_float(name, 0.0, 1.0))

    def _values(self) -> dict[int, float]:
        """The best value of each trial that has one; of failed trials the worst of these."""
        found = {trial: max(curve.values()) for trial, curve in self._curves.items() if curve}
        return found | dict.fromkeys(self._failed, min(found.values())) if found else {}

    def _as_optuna(self, trial: int, value: float | None) -> Any:
        """A finished trial with this value; without one a running or failed trial."""
        from optuna.trial import TrialState, create_trial

        without = TrialState.FAIL if trial in self._failed else TrialState.RUNNING
        active = {
            name: unit
            for name, unit in zip(self._distributions, self._units[trial], strict=True)
            if not math.isnan(unit)
        }
        return create_trial(
            state=without if value is None else TrialState.COMPLETE,
            value=value,
            params={name: self._param(name, unit) for name, unit in active.items()},
            distributions={name: self._distributions[name] for name in active},
        )

    def _param(self, name: str, unit: float) -> float | int:
        domain = self._space.dimensions[name]
        return int(unit * domain.size) if isinstance(domain, Choice) else float(unit)
