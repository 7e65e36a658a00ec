"""A study: what is searched, how, and for how long; and the file that declares it."""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from tuner.errors import SpaceError, StudyError
from tuner.machine import Machine, this_machine
from tuner.resources import Resources
from tuner.schedule import ASHA, Scheduler
from tuner.search import History, MultiFidelityGP, Problem, SearchAlgorithm
from tuner.space import Space
from tuner.trial import HYPERPARAMETERS, ImageClassifier, Trial, as_trial

DEFAULT_MAX_EPOCHS = 10
DEFAULT_TRIALS = 20
STUDY_MODULE = "tuner_study_"  # what the modules of study files are called, followed by the file's name


@dataclass(frozen=True)
class Budget:
    """How much a search may spend; it ends at whichever limit comes first.

    `trials` counts configurations, None means as many as the space or the other limits allow; `max_epochs` is the
    length of a trial. Once one of these is reached no trial goes on beyond its running epoch: `hours` of wall-clock
    time; `device_hours`, in which each running trial counts with its GPUs, or its CPUs where it has none;
    `total_epochs` of all trials together; `target`, a value of the metric. `min_improvement`, in units of the metric,
    starts no more trials once no configuration is expected to improve on the best by more, which takes a search with a
    model of the metric, such as `MultiFidelityGP()`.
    """

    trials: int | None = DEFAULT_TRIALS
    max_epochs: int = DEFAULT_MAX_EPOCHS
    hours: float | None = None
    device_hours: float | None = None
    total_epochs: int | None = None
    target: float | None = None
    min_improvement: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that leave nothing to do."""
        _require_count("Budget.trials", self.trials, optional=True)
        _require_count("Budget.max_epochs", self.max_epochs)
        _require_count("Budget.total_epochs", self.total_epochs, optional=True)
        for name in ("hours", "device_hours", "min_improvement"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                raise StudyError(f"Budget.{name} needs a number above 0, got {value!r}; leave it out for no limit")
        if self.target is not None and not _is_number(self.target):
            raise StudyError(
                f"Budget.target needs a value of the metric, got {self.target!r}; leave it out for no limit"
            )


@dataclass(frozen=True)
class Study:
    """One search, declared. Building it checks it: raises StudyError (SpaceError, …) with rule, value and fix.

    `trial` is an `ImageClassifier` or a function `train(config)` that calls `tuner.report` once per epoch; `space` maps
    names to domains, constants or nested dicts of them; `start_from` lists configurations that are tried first (a
    dimension left out of one is sampled); then come those that `warm_start` finds in earlier runs, None for not to look
    there. `constraint` takes a configuration and says whether it is worth a trial, as
    `lambda config: config["batch_size"] * config["image_size"] ** 2 < 10_000_000`: others are never tried. `source`
    is the file that declared it, set by `load_study`.
    """

    name: str
    _: KW_ONLY
    trial: Trial | Callable[[dict[str, Any]], Any]
    space: Mapping[str, Any] | Space
    metric: str = "val_accuracy"
    mode: Literal["min", "max"] = "max"
    search: SearchAlgorithm = field(default_factory=MultiFidelityGP)
    scheduler: Scheduler = field(default_factory=ASHA)
    budget: Budget = field(default_factory=Budget)
    resources: Resources = field(default_factory=Resources)
    start_from: Sequence[Mapping[str, Any]] = ()
    warm_start: History | None = field(default_factory=History)
    constraint: Callable[[dict[str, Any]], bool] | None = None
    seed: int = 0
    source: Path | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Run every check that needs no machine and no file."""
        _check_types(self)
        self.declared_trial.check(self.search_space)
        self._check_metric()
        self.search.check(self.search_space)
        if self.budget.min_improvement is not None and not self.search.expects_improvement:
            raise StudyError(
                f"Budget.min_improvement needs a search with a model of the metric, got {self.search!r}; "
                "use MultiFidelityGP()"
            )
        self.scheduler.check(self.budget.max_epochs)
        self._check_constraint()
        if not isinstance(self.warm_start, History | None):
            raise StudyError(f"warm_start needs History(...) or None, got {self.warm_start!r}; write History()")
        if self.warm_start is not None:
            self.warm_start.check()
        _ = self.starting_points

    @cached_property
    def declared_trial(self) -> Trial:
        """`trial`, a plain function wrapped."""
        return as_trial(self.trial)

    @property
    def uses_gpu(self) -> bool:
        """Whether a trial gets a GPU without being asked to, where there is one."""
        return isinstance(self.declared_trial, ImageClassifier)

    @property
    def strategies(self) -> tuple[str, ...]:
        """How trials may use several devices."""
        return self.resources.strategies(self.search_space)

    @cached_property
    def search_space(self) -> Space:
        """The parsed space."""
        if not isinstance(self.space, Space):
            return Space(self.space, self.constraint)
        return self.space if self.constraint is None else self.space.constrained(self.constraint)

    @cached_property
    def starting_points(self) -> list[dict[str, Any]]:
        """`start_from` as plain, checked configurations."""
        points = enumerate(self.start_from)
        return [self.search_space.check(dict(point), where=f"start_from[{index}]") for index, point in points]

    def _check_constraint(self) -> None:
        """Find one configuration that meets the constraint, of any, and from each starting point."""
        space = self.search_space
        if space.constraint is None:
            return
        if space.size == 0:
            raise SpaceError("constraint needs to leave some configurations, got none of the space; loosen it")
        generator = np.random.default_rng(0)
        for index, point in enumerate([{}, *self.starting_points]):
            try:
                space.complete(point, generator)
            except SpaceError as error:
                raise SpaceError(f"start_from[{index - 1}]: {error}" if index else str(error)) from error

    @property
    def trials(self) -> int | None:
        """How many trials the study can run: its budget, or the whole of a smaller space; None for no limit."""
        size = self.search_space.size
        limits = [limit for limit in (self.budget.trials, None if math.isinf(size) else int(size)) if limit is not None]
        return min(limits) if limits else None

    @property
    def problem(self) -> Problem:
        """What the search algorithm is told."""
        return Problem(
            self.search_space,
            mode=self.mode,
            seed=self.seed,
            trials=self.trials,
            max_epochs=self.budget.max_epochs,
            rungs=tuple(self.scheduler.rungs(self.budget.max_epochs)),
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
        self.declared_trial.check_files()

    def check_machine(self, machine: Machine, where: str = "this machine") -> None:
        """Raise StudyError where one trial asks for more CPUs or GPUs than there are: it would wait for ever."""
        resources = self.resources.resolve(gpus_present=machine.gpus, uses_gpu=self.uses_gpu)
        resources.check_strategies(self.declared_trial, self.search_space)
        wanted: dict[str, tuple[float, int]] = {
            "cpus": (resources.cpus or 0, machine.cpus),
            "gpus": (resources.gpus or 0, machine.gpus),
        }
        for kind, (got, present) in wanted.items():
            if got > present:
                fix = f"use at most {present}" if present else f"leave {kind} out, or run where there is one"
                raise StudyError(
                    f"a trial can have at most the {kind[:-1].upper()}s that {where} has ({present}), "
                    f"got Resources({kind}={got:g}); {fix} (also --{kind}-per-trial)"
                )

    def with_options(
        self,
        *,
        name: str | None = None,
        trials: int | None = None,
        hours: float | None = None,
        device_hours: float | None = None,
        total_epochs: int | None = None,
        target: float | None = None,
        cpus: float | None = None,
        gpus: float | None = None,
        strategy: str | None = None,
        placement: str | None = None,
        seed: int | None = None,
        fixed: Mapping[str, Any] | None = None,
        weights: str | None = None,
        data_dir: str | None = None,
        history: bool | None = None,
    ) -> Study:
        """The study with command-line options laid over it; None leaves a setting as it is.

        `weights` is "imagenet", "none" or a path; `history=False` leaves earlier runs aside. Raises StudyError for an
        option that doesn't fit the study.
        """
        changes: dict[str, Any] = {}
        if name is not None:
            changes["name"] = name
        if seed is not None:
            changes["seed"] = seed
        if history is False:
            changes["warm_start"] = None
        limits = {
            "trials": trials,
            "hours": hours,
            "device_hours": device_hours,
            "total_epochs": total_epochs,
            "target": target,
        }
        if given := _given(limits):
            changes["budget"] = replace(self.budget, **given)
        if given := _given({"cpus": cpus, "gpus": gpus, "strategy": strategy, "placement": placement}):
            changes["resources"] = replace(self.resources, **given)
        if weights is not None or data_dir is not None:
            changes["trial"] = self._trial_with(weights, data_dir)
        if strategy is not None and "strategy" in {*self.search_space.dimensions, *self.search_space.constants}:
            fixed = {"strategy": strategy, **(fixed or {})}  # what the space says would go before
        if fixed:
            changes |= self._with_fixed(dict(fixed))
        return replace(self, **changes) if changes else self

    def _trial_with(self, weights: str | None, data_dir: str | None) -> Trial:
        trial = self.declared_trial
        if not isinstance(trial, ImageClassifier):
            options = [
                f"--{name}" for name, given in (("weights", weights), ("data-dir", data_dir)) if given is not None
            ]
            raise StudyError(
                f"{' and '.join(options)} need{'s' if len(options) == 1 else ''} an ImageClassifier, "
                f"got the function {trial.name!r}; read the setting inside the function instead"
            )
        changes: dict[str, Any] = {}
        if weights is not None:
            changes["weights"] = None if weights.lower() == "none" else weights
        if data_dir is not None:
            changes["data_dir"] = data_dir
        return replace(trial, **changes)

    def _with_fixed(self, fixed: dict[str, Any]) -> dict[str, Any]:
        """`--set name=value`: the name becomes a constant, and starting points follow it."""
        more = tuple(HYPERPARAMETERS) if isinstance(self.declared_trial, ImageClassifier) else ()
        space = self.search_space.fix(fixed, more=more)
        return {"space": space, "start_from": tuple(space.project(point) for point in self.starting_points)}

    def _check_metric(self) -> None:
        metrics = self.declared_trial.metrics
        if metrics is not None and self.metric not in metrics:
            close = difflib.get_close_matches(self.metric, metrics, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(metrics)}"
            raise StudyError(
                f"metric needs to be one that {self.declared_trial.name} reports, got {self.metric!r}; {hint}"
            )
        if metrics is not None:
            expected = "max" if "accuracy" in self.metric else "min"
            if self.mode != expected:
                raise StudyError(
                    f"{self.metric} is better {'high' if expected == 'max' else 'low'}, got mode={self.mode!r}; "
                    f"use mode={expected!r}"
                )


def load_study(path: str | Path, *, imports_from: Path | None = None) -> Study:
    """The `study` that the file declares.

    The file is run as Python; it can import modules beside it, or in `imports_from`. Raises StudyError where there is
    no such file, it fails to run (with the file's own line), or declares no `study`.
    """
    path = Path(path)
    if not path.is_file():
        raise StudyError(
            f"a study file is a Python file that declares `study`, got {str(path)!r}, which is no file; {_nearby(path)}"
        )
    module = _execute(path, imports_from or path.resolve().parent)
    found = getattr(module, "study", None)
    if isinstance(found, Study):
        return replace(found, source=path.resolve())
    others = [name for name, value in vars(module).items() if isinstance(value, Study)]
    if others:
        raise StudyError(f"{path} needs its study under the name `study`, got {others[0]!r}; rename it")
    what = "nothing of that name" if found is None else f"a {type(found).__name__}"
    raise StudyError(f"{path} needs a module-level `study = Study(...)`, got {what}; see search_spaces/ for examples")


def _execute(path: Path, imports_from: Path) -> ModuleType:
    name = STUDY_MODULE + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise StudyError(f"a study file needs a name that ends in .py, got {str(path)!r}; rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(imports_from) not in sys.path:
        sys.path.append(str(imports_from))
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a check leaves nothing behind
    try:
        spec.loader.exec_module(module)
    except StudyError as error:
        raise type(error)(f"{error} ({_line_of(error, path)})") from error
    except SyntaxError as error:  # its text names file and line, maybe those of a module that the file imports
        raise StudyError(f"{path} does not run: {type(error).__name__}: {error}; fix the file") from error
    except Exception as error:
        raise StudyError(
            f"{path} does not run: {type(error).__name__}: {error} ({_line_of(error, path)}); fix the file"
        ) from error
    except SystemExit as error:
        raise StudyError(f"{path} needs to declare a study and return, got exit({error.code!r}); remove it") from error
    finally:
        sys.dont_write_bytecode = dont_write
    return module


def _line_of(error: BaseException, path: Path) -> str:
    """`file, line N` of the study file where the error came from."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path.resolve())]
    return f"{path.name}, line {lines[-1]}" if lines else path.name


def _nearby(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    candidates = [str(folder / file.name) for file in sorted(folder.glob("*.py"))]
    candidates += [str(file) for file in sorted(Path("search_spaces").glob("*.py"))]
    close = difflib.get_close_matches(str(path), candidates, n=1, cutoff=0.4)
    return f"did you mean {close[0]!r}?" if close else "give the path of one"


def _check_types(study: Study) -> None:
    if not isinstance(study.name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", study.name):
        raise StudyError(
            f"a study's name becomes a folder: letters, digits, '.', '_' and '-' only, got {study.name!r}; "
            f"try {re.sub(r'[^A-Za-z0-9_.-]+', '-', str(study.name)).strip('-.') or 'my-study'!r}"
        )
    if study.mode not in ("min", "max"):
        raise StudyError(f"mode needs 'min' or 'max', got {study.mode!r}; use 'max' for an accuracy, 'min' for a loss")
    kinds: dict[str, type] = {
        "search": SearchAlgorithm,
        "scheduler": Scheduler,
        "budget": Budget,
        "resources": Resources,
        "metric": str,
    }
    for name, kind in kinds.items():
        value = getattr(study, name)
        if not isinstance(value, kind):
            hint = f"; write {value.__name__}()" if isinstance(value, type) and issubclass(value, kind) else ""
            raise StudyError(f"{name} needs a {kind.__name__}, got {value!r}{hint}")
    if isinstance(study.seed, bool) or not isinstance(study.seed, int) or study.seed < 0:
        raise StudyError(f"seed needs a whole number of at least 0, got {study.seed!r}; use 0")
    points = study.start_from
    if not isinstance(points, Sequence) or not all(isinstance(point, Mapping) for point in points):
        raise StudyError(f"start_from needs a list of configurations, got {study.start_from!r}; write [{{...}}]")


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _require_count(name: str, value: object, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise StudyError(f"{name} needs a whole number of at least 1, got {value!r}; use 1 or more")
