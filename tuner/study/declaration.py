"""A study: the space, how it is searched, and for how long."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tuner.errors import SpaceError, StudyError, shown
from tuner.machine.hardware import Machine, this_machine
from tuner.schedule import ASHA, Scheduler
from tuner.search import History, MultiFidelityGP, Problem, SearchAlgorithm, start_from_runs
from tuner.space import Space
from tuner.space.mode import Mode, Objective
from tuner.space.space import declared_space
from tuner.space.values import is_one_of, is_writable, value_of
from tuner.study.budget import Budget, check_names
from tuner.study.counterparts import counterpart
from tuner.study.failures import Failures
from tuner.study.resources import Amount, Resources
from tuner.trial import Trial, as_trial, inference_cost, splitting
from tuner.trial.hyperparameter import spellings_of
from tuner.trial.inference_cost import KnownCosts, Latency, WithinLimits, check_limits
from tuner.trial.only_the_head import needing

LARGEST_SEED_BITS = 128
LONGEST_NAME = 100  # bytes; file systems take 255
SOUNDS_LOW = re.compile(r"(?:^|[_/. ])(?:loss|error|mse|rmse|mae|nll|perplexity)(?:$|[_/. ])", re.IGNORECASE)  # metrics
MOST_REPEATS = 100
COMBINATIONS = AUTO, ENSEMBLE, SOUP, DISTILLED = "auto", "ensemble", "soup", "distilled"  # of the best trials
ONE_NETWORK = None, SOUP, DISTILLED  # what costs no more than the winner
WORKING_FOLDERS = ("kept", "temporary", "shared")
# For packages that may import studies but not trials
REFIT, OF_FORWARD, recorded_costs = splitting.REFIT, inference_cost.OF_FORWARD, KnownCosts.recorded
KINDS: dict[str, type] = {
    "search": SearchAlgorithm,
    "scheduler": Scheduler,
    "budget": Budget,
    "resources": Resources,
    "failures": Failures,
    "metric": str,
    "latency": Latency,
}


@dataclass(frozen=True)
class Study:
    """The declaration of one search. Building it checks it: raises StudyError (SpaceError, …) with rule, value and fix.

    `trial` is an `ImageClassifier` or a function `train(config)` that calls `tuner.report` once per epoch; `space` maps
    names to domains, constants or nested dicts of them; `start_from` lists configurations that are tried first (a
    dimension left out of one is sampled), then those that `warm_start` finds in earlier runs (None: none are used).
    `constraint` takes a configuration and says whether it is worth a trial, as `lambda config: config["batch_size"] *
    config["image_size"] ** 2 < 10_000_000`: others are never tried. Nor are those whose networks cost more than
    `limits`, as {"latency_ms": 20, "size_mb": 15}, also of "memory_mb" and "flops": the networks of the space are
    measured when the search starts, as `latency` says. `repeats` is the most seeds with which a leading
    configuration is trained before it counts as the best; 1 for no repeats. `refit="train+validation"` trains the
    winner again at the end, on all images except those of the test split. `combine="auto"` puts the average of the best
    trials' answers into `best/`, or a network with the mean of their weights, if validation images show that it pays,
    "ensemble" or "soup" in any case; "distilled" trains a network that learns from this average. Each trial of a
    function works in a folder of its own, which is "kept" in the run folder as `files/<trial>/`, or "temporary"; with
    `working_folder="shared"` all work in the folder where the search is started. `source` is the file that declared
    the study, set by `load_study`. `metric` may be left out for the trial's usual one, which is "val_accuracy"
    unless an `ImageClassifier` has another task. A list of two, as ["val_accuracy", "latency_ms"], makes a search for
    the front of both; the first decides what `best/` has, the second may be one that trials report, with
    `mode=["max", "min"]`, or a cost of networks that `limits` knows. `mode` may be left out: `ImageClassifier` declares
    which of its metrics are better high and which low; a function's metric is maximised then.
    """

    name: str
    _: KW_ONLY
    trial: Trial | Callable[[dict[str, Any]], Any]
    space: Mapping[str, Any] | Space
    metric: str = None  # type: ignore[assignment]  # never left so: see __post_init__
    mode: Mode = None  # type: ignore[assignment]  # never left so: see __post_init__
    search: SearchAlgorithm = field(default_factory=MultiFidelityGP)
    scheduler: Scheduler = field(default_factory=ASHA)
    budget: Budget = field(default_factory=Budget)
    resources: Resources = field(default_factory=Resources)
    failures: Failures = field(default_factory=Failures)
    start_from: Sequence[Mapping[str, Any]] = ()
    warm_start: History | None = field(default_factory=History)
    constraint: Callable[[dict[str, Any]], bool] | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    latency: Latency = field(default_factory=Latency)
    seed: int = 0
    repeats: int = 1
    refit: Literal["train+validation"] | None = None
    combine: Literal["auto", "ensemble", "soup", "distilled"] | None = None
    working_folder: Literal["kept", "temporary", "shared"] = "kept"
    source: Path | None = field(default=None, compare=False, repr=False)
    second: Objective | None = None  # set from `metric`
    costs: KnownCosts | None = field(default=None, compare=False, repr=False)  # set when the search starts

    def __post_init__(self) -> None:
        """Run every check that doesn't depend on the machine or files."""
        if self.metric is None:
            object.__setattr__(self, "metric", as_trial(self.trial).usual_metric)
        self._take_two_metrics()
        _check_types(self)
        self.declared_trial.check(self.search_space)
        self._check_metric()
        if self.mode is None:
            object.__setattr__(self, "mode", self.declared_trial.directions.get(self.metric) or "max")
        self.search.check(self.search_space)
        if self.budget.min_improvement is not None and not self.search.expects_improvement:
            raise StudyError(
                f"Budget.min_improvement needs a search with a model of the metric, got {self.search!r}; "
                "use MultiFidelityGP()"
            )
        self.scheduler.check(self.budget.max_epochs)
        self._check_constraint()
        self._check_repeats()
        self._check_limits()
        self._check_second()
        check_refit(self.refit, self.declared_trial)
        check_combine(self.combine, self.declared_trial, self.search_space)
        if self.refit is not None and self.combine is not None:
            raise StudyError(
                f"a study trains its winner again or averages its best trials, got refit={self.refit!r} and "
                f"combine={self.combine!r}; leave one out"
            )
        if self.warm_start is not None:
            self.warm_start.check()
        _ = self.starting_points

    @cached_property
    def declared_trial(self) -> Trial:
        """`trial`, which knows the space; a plain function is wrapped."""
        return as_trial(self.trial).within(self.search_space)

    @property
    def notices(self) -> list[str]:
        """Sentences about settings that are allowed but probably not intended."""
        found = self.declared_trial.notices(self.search_space, self.budget.max_epochs)
        if self.mode == "max" and SOUNDS_LOW.search(self.metric):
            found = [f"{self.metric} is maximised; if it is better low, set mode='min'", *found]
        if self.latency != Latency() and not self.measured:
            found.append("latency changes nothing, as no cost is measured; name one in limits, or as the second metric")
        return found

    @property
    def uses_gpu(self) -> bool:
        """Whether a trial gets a GPU by default, if there is one."""
        return self.declared_trial.uses_gpu

    @property
    def strategies(self) -> tuple[str, ...]:
        """How trials may use several devices."""
        return self.resources.strategies(self.search_space)

    @property
    def forecast(self) -> dict[str, Any]:
        """What the time left of a search depends on besides its limits: fields of `Ahead` in results."""
        return {**self.scheduler.forecast, "learns": self.search.learns, "scored": not self.declared_trial.is_code}

    @cached_property
    def search_space(self) -> Space:
        """The parsed space."""
        own = self.space.constraint if self.constraint is None and isinstance(self.space, Space) else self.constraint
        constraint = own if self.costs is None else WithinLimits(self.costs, own)
        if not isinstance(self.space, Space):
            return declared_space(self.space, constraint)
        return self.space if constraint is None else self.space.constrained(constraint)

    @property
    def value_limits(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest value that the trial takes, for the dimensions of the space where it is known."""
        known, space = self.declared_trial.known_hyperparameters, self.search_space
        rows = {name: known[name] for name in space.dimensions if name in known}
        return {name: (row.low, row.high) for name, row in rows.items() if math.isfinite(row.high - row.low)}

    @cached_property
    def starting_points(self) -> list[dict[str, Any]]:
        """`start_from` as plain, checked configurations."""
        points = enumerate(self.start_from)
        return [self.search_space.check(dict(point), where=f"start_from[{index}]") for index, point in points]

    def _check_constraint(self) -> None:
        """Find a configuration that may be tried, in the whole space and from each starting point."""
        space = self.search_space
        if space.size == 0:
            raise SpaceError("constraint needs to leave some configurations, got none of the space; loosen it")
        generator = np.random.default_rng(0)
        for index, point in enumerate([{}, *self.starting_points]):
            try:
                space.complete(point, generator)
            except SpaceError as error:
                raise SpaceError(f"start_from[{index - 1}]: {error}" if index else str(error)) from error

    def _take_two_metrics(self) -> None:
        """Keep the first of two metrics as `metric`, the other as `second`."""
        metrics: Any = self.metric
        if not isinstance(self.second, Objective | None):
            raise StudyError(
                f"second is set by tuner, got {shown(self.second)}; write metric=['val_accuracy', 'latency_ms']"
            )
        if isinstance(metrics, str) or not isinstance(metrics, Sequence):
            return
        modes: Any = self.mode
        modes = list(modes) if isinstance(modes, list | tuple) else [modes, None]
        texts = all(isinstance(one, str) and one.strip() for one in metrics)
        if len(metrics) != 2 or not texts or len(set(metrics)) != 2:
            raise StudyError(
                f"metric takes a name, or a list of two different ones, got {shown(metrics)}; write "
                "metric='val_accuracy' or metric=['val_accuracy', 'latency_ms']"
            )
        if len(modes) != 2:
            raise StudyError(f"two metrics have two modes, got mode={shown(modes)}; write mode=['max', 'min']")
        first, second = metrics
        trial = as_trial(self.trial)
        mode: Any = modes[1] or trial.directions.get(second) or ("min" if second in inference_cost.COSTS else None)
        if not is_one_of(mode, ("min", "max")):
            raise StudyError(
                f"a second metric needs a direction, got {shown(mode)} for {second!r}; write mode=['max', 'min']"
            )
        object.__setattr__(self, "metric", first)
        object.__setattr__(self, "mode", modes[0])
        object.__setattr__(self, "second", Objective(second, mode))

    @property
    def measured(self) -> tuple[str, ...]:
        """The costs of networks that are measured before the search."""
        second = [self.second.metric] if self.second and self.second.metric in inference_cost.COSTS else []
        return tuple(dict.fromkeys([*(second if self.declared_trial.measures_networks else []), *self.limits]))

    @property
    def reported(self) -> tuple[str, ...]:
        """The metrics that trials have to report."""
        second = [] if self.second is None or self.second.metric in self.measured else [self.second.metric]
        return (self.metric, *second)

    def price(self, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> float | None:
        """A trial's second objective, higher is better, from what is known of its network or from what it reports.

        None if there is none, or it isn't known.
        """
        if self.second is None:
            return None
        value = inference_cost.second_value(self.costs, self.second.metric, config, metrics)
        return None if value is None else self.second.oriented(value)

    def _check_second(self) -> None:
        if self.second is None:
            return
        for what, part in (("search", self.search), ("scheduler", self.scheduler)):
            if not part.takes_two_objectives:
                raise StudyError(
                    f"{what} needs one that takes two metrics, got {part!r}; use "
                    f"{'MultiFidelityGP()' if what == 'search' else 'ASHA()'}, or one metric"
                )
        if self.budget.min_improvement is not None:
            raise StudyError(
                f"Budget.min_improvement is of one metric, got {self.budget.min_improvement:g} with two; leave it out"
            )
        if self.combine not in ONE_NETWORK and self.second.metric in self.measured:
            raise StudyError(
                f"combine averages several networks, which raises {self.second.metric}, got combine={self.combine!r}; "
                f"leave it out, or write combine={SOUP!r}"
            )

    def _check_limits(self) -> None:
        check_limits(self.limits)
        object.__setattr__(self, "limits", value_of(dict(self.limits)))
        if not self.limits:
            return
        if not self.declared_trial.measures_networks:
            raise StudyError(
                f"limits needs an ImageClassifier with models by name, got {self.declared_trial.described}; use "
                "constraint for what you know of configurations"
            )
        if self.combine not in ONE_NETWORK:
            raise StudyError(
                f"limits are those of one network, and an average of several costs more, got limits={self.limits!r} "
                f"and combine={self.combine!r}; leave one out, or write combine={SOUP!r}"
            )

    def _check_repeats(self) -> None:
        whole = isinstance(self.repeats, int) and not isinstance(self.repeats, bool)
        if not whole or not 1 <= self.repeats <= MOST_REPEATS:
            raise StudyError(
                f"repeats counts the seeds of a leading configuration and needs a whole number from 1 to "
                f"{MOST_REPEATS}, got {shown(self.repeats)}; use 3, or 1 for none more"
            )
        if self.repeats > 1 and self.declared_trial.asked_for:
            raise StudyError(
                f"repeats needs trials that tuner trains, got {self.declared_trial.described} and repeats="
                f"{self.repeats}; leave repeats out, and train the best again in your own program"
            )

    @property
    def trials(self) -> int | None:
        """How many trials the study can run: its budget, or the whole of a smaller space; None for no limit."""
        size = self.search_space.size
        limits = [limit for limit in (self.budget.trials, None if math.isinf(size) else int(size)) if limit is not None]
        return min(limits) if limits else None

    @property
    def problem(self) -> Problem:
        """The problem as the search algorithm receives it."""
        return Problem(
            self.search_space,
            mode=self.mode,
            seed=self.seed,
            trials=self.trials,
            max_epochs=self.budget.max_epochs,
            rungs=tuple(self.scheduler.rungs(self.budget.max_epochs)),
            price_of=(lambda config: self.price(config, {})) if self.second and self.costs else None,
        )

    def better(self, value: float, than: float | None) -> bool:
        """Whether `value` of the metric is better than the other; everything is better than None."""
        if than is None:
            return True
        return value > than if self.mode == "max" else value < than

    def check_here(self, *, cluster: bool = False) -> None:
        """Check what depends on this machine: its files, and (unless a cluster's count) its CPUs and GPUs.

        Raises StudyError, DataError or WeightsError.
        """
        if not cluster:
            self.check_machine(this_machine())
            self.resources.check_alone()
        self.declared_trial.check_installed(self.search_space)
        self.declared_trial.check_files()
        for name in self.reported:
            self.declared_trial.check_metric(name)

    def check_machine(self, machine: Machine, where: str = "this machine") -> None:
        """Raise StudyError if one trial asks for more CPUs or GPUs than there are: it would wait for ever."""
        self.resources.check_packing(self.search_space, gpus_present=machine.gpus)
        self._check_device_hours()
        resources = self.resources.resolve(gpus_present=machine.gpus, uses_gpu=self.uses_gpu)
        resources.check_strategies(self.declared_trial, self.search_space)
        wanted: dict[str, tuple[float, int]] = {
            "cpus": (resources.cpu_count, machine.cpus),
            "gpus": (resources.gpu_count, machine.gpus),
        }
        for kind, (got, present) in wanted.items():
            if got > present:
                fix = f"use at most {present}" if present else f"leave {kind} out, or run where there is one"
                raise StudyError(
                    f"a trial can have at most the {kind[:-1].upper()}s that {where} has ({present}), "
                    f"got Resources({kind}={got:g}); {fix} (also --{kind}-per-trial)"
                )

    def _check_device_hours(self) -> None:
        """Packed trials don't each hold a fixed part of a device, so device hours can't be counted."""
        packed = self.resources.packed
        if packed and self.budget.device_hours is not None:
            raise StudyError(
                f"Budget.device_hours needs the same amount of devices for each trial, got {packed}='auto'; use hours, "
                f"in which a search holds all {packed[:-1].upper()}s of the machine"
            )

    def with_options(
        self,
        *,
        name: str | None = None,
        cpus: Amount | None = None,
        gpus: Amount | None = None,
        strategy: str | None = None,
        placement: str | None = None,
        seed: int | None = None,
        fixed: Mapping[str, Any] | None = None,
        weights: str | None = None,
        data_dir: str | None = None,
        history: bool | None = None,
        portfolio: bool | None = None,
        **limits: float | None,
    ) -> Study:
        """The study changed by command-line options; None leaves a setting unchanged.

        `limits` are those of `Budget` by their names; `weights` is "imagenet", "none" or a path; `history=False`
        ignores earlier runs, `portfolio=False` leaves the trainer's defaults and tuner's own studies out.

        Raises:
            StudyError: an option doesn't fit the study.
        """
        check_names(limits)
        changes: dict[str, Any] = {}
        if name is not None:
            changes["name"] = name
        if seed is not None:
            changes["seed"] = seed
        if history is False or portfolio is not None:
            changes["warm_start"] = start_from_runs(self.warm_start, history=history is not False, portfolio=portfolio)
        if given := _given(limits):
            changes["budget"] = replace(self.budget, **given)
        if given := _given({"cpus": cpus, "gpus": gpus, "strategy": strategy, "placement": placement}):
            changes["resources"] = replace(self.resources, **given)
        if weights is not None or data_dir is not None:
            changes["trial"] = self.declared_trial.with_options(weights=weights, data_dir=data_dir)
        if strategy is not None and "strategy" in {*self.search_space.dimensions, *self.search_space.constants}:
            fixed = {"strategy": strategy, **(fixed or {})}  # the space would take precedence
        if fixed:
            changes |= self._with_fixed(value_of(dict(fixed)), changes.get("trial", self.declared_trial))
        return replace(self, **changes) if changes else self

    def _with_fixed(self, fixed: dict[str, Any], trial: Trial) -> dict[str, Any]:
        """`--set name=value`: the name becomes a constant, also in starting points."""
        space = self.search_space.fix(fixed, spellings_of(self.declared_trial.known_hyperparameters.values()))
        changes = {"space": space, "start_from": tuple(space.project(point) for point in self.starting_points)}
        narrowed = trial.narrowed(space)
        return changes if narrowed is trial else changes | {"trial": narrowed}

    def _check_metric(self) -> None:
        """Refuse metrics that the trial doesn't report or that can't be optimised, and the wrong direction."""
        metrics, directions = self.declared_trial.reports, self.declared_trial.directions
        second = [(self.second.metric, self.second.mode)] if self.second else []
        costs = dict.fromkeys(inference_cost.COSTS if self.declared_trial.measures_networks else (), "min")
        for place, (name, mode) in enumerate([(self.metric, self.mode), *second]):
            if metrics is not None and name not in (*metrics, *(costs if place else ())):
                fix = self.declared_trial.instead_of(name)
                if self.declared_trial.measures_networks and second:
                    fix = f"one of {', '.join(costs)} may be the second; {fix}"
                raise StudyError(f"metric needs to be one that {self.declared_trial.name} reports, got {name!r}; {fix}")
            known = {**costs, **directions} if place else directions
            if name not in known:
                continue
            direction = known[name]
            if direction is None:
                aims = ", ".join(name for name, better in directions.items() if better)
                raise StudyError(f"metric needs one to maximise or minimise, got {name!r}; use one of {aims}")
            if mode not in (None, direction):
                raise StudyError(
                    f"{name} is better {'high' if direction == 'max' else 'low'}, got mode={mode!r}; "
                    f"use mode={direction!r}, or leave it out"
                )


def _check_types(study: Study) -> None:
    if not isinstance(study.name, str) or not re.fullmatch(r"[^\W_][\w.-]*", study.name):
        like = re.sub(r"[^\w.-]+", "-", study.name if isinstance(study.name, str) else shown(study.name))
        raise StudyError(
            f"a study's name becomes a folder: letters, digits, '.', '_' and '-' only, got {shown(study.name)}; "
            f"try {like[:LONGEST_NAME].strip('-._') or 'my-study'!r}"
        )
    if len(study.name.encode()) > LONGEST_NAME:
        raise StudyError(
            f"a study's name takes at most {LONGEST_NAME} bytes as UTF-8, got {len(study.name.encode())}; shorten it"
        )
    if study.mode is not None and not is_one_of(study.mode, ("min", "max")):
        raise StudyError(
            f"mode needs 'min' or 'max', got {shown(study.mode)}; use 'max' for an accuracy, 'min' for a loss"
        )
    for name, kind in KINDS.items():
        value = getattr(study, name)
        if not isinstance(value, kind) or not is_writable(value):
            own = f"{value.__name__}()" if isinstance(value, type) and issubclass(value, kind) else counterpart(value)
            raise StudyError(f"{name} needs a {kind.__name__}, got {shown(value)}" + (f"; write {own}" if own else ""))
    if not study.metric.strip():
        raise StudyError(f"metric needs the name of what trials report, got {shown(study.metric)}; write metric='loss'")
    if not is_one_of(study.working_folder, WORKING_FOLDERS):
        raise StudyError(
            f"working_folder needs one of {', '.join(map(repr, WORKING_FOLDERS))}, got {shown(study.working_folder)}; "
            "leave it out to keep what each trial writes"
        )
    if study.working_folder != WORKING_FOLDERS[0] and as_trial(study.trial).kind != "function":
        raise StudyError(
            f"working_folder is for trials that are functions, got {study.working_folder!r} with "
            f"{as_trial(study.trial).described}; leave it out"
        )
    if not isinstance(study.warm_start, History | None):
        raise StudyError(f"warm_start needs History(...) or None, got {shown(study.warm_start)}; write History()")
    if isinstance(study.seed, bool) or not isinstance(study.seed, int) or study.seed < 0:
        raise StudyError(f"seed needs a whole number of at least 0, got {shown(study.seed)}; use 0")
    if study.seed.bit_length() > LARGEST_SEED_BITS:
        raise StudyError(f"seed needs at most {LARGEST_SEED_BITS} bits, got {shown(study.seed)}; use 0")
    points = study.start_from
    if not isinstance(points, Sequence) or not all(isinstance(point, Mapping) for point in points):
        raise StudyError(f"start_from needs a list of configurations, got {shown(points)}; write [{{...}}]")


def check_refit(refit: object, trial: Trial) -> None:
    """Raise StudyError for an unknown kind of refit, and for trials that can't be trained on other images."""
    if refit is None:
        return
    if refit != REFIT:
        raise StudyError(f"refit needs {REFIT!r} or None, got {shown(refit)}; write refit={REFIT!r}")
    if trial.refit_share is None:
        raise StudyError(
            f"refit needs an ImageClassifier, whose images tuner knows, got {trial.described}; leave refit out, and "
            "train the best again on all images in your own program"
        )


def check_combine(combine: object, trial: Trial, space: Space) -> None:
    """Raise StudyError for an unknown way to combine trials, and for trials that can't be combined so."""
    if combine is None:
        return
    if combine not in COMBINATIONS:
        allowed = ", ".join(map(repr, COMBINATIONS))
        raise StudyError(f"combine needs {allowed} or None, got {shown(combine)}; write combine={AUTO!r}")
    if trial.refit_share is None:
        raise StudyError(
            f"combine needs an ImageClassifier, whose networks tuner knows, got {trial.described}; leave combine out, "
            "and average answers in your own program"
        )
    if combine == SOUP and not trial.has_soups:
        raise StudyError(
            f"combine={SOUP!r} is the mean of networks that began from the same published weights, got "
            f"{trial.described} from random weights or of a function's; name weights, or write combine={AUTO!r}"
        )
    if combine == DISTILLED and trial.folds:
        raise StudyError(
            f"combine={DISTILLED!r} trains one network, which needs validation images of its own, got "
            f"{trial.described} with a cross-validation; write validation=0.2, or combine={AUTO!r}"
        )
    if combine == DISTILLED and (needs := needing(space.constants)) is not None:
        raise StudyError(
            f"combine={DISTILLED!r} trains a network in steps on images, got {needs}, by which heads learn from "
            f"features; leave it out, or write combine={AUTO!r}"
        )


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
