"""An Optuna storage of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.events import finite
from tuner.history.records import TrialRecord
from tuner.results.export.new_place import new
from tuner.results.front import all_points, front_of
from tuner.results.run import RecordedRun
from tuner.space import Choice, Domain, Float, Integer
from tuner.space.values import canonical, is_number


def write_storage(run: RecordedRun, path: Path) -> list[Path]:
    """A SQLite file with the run as a study of Optuna's; raises RunFolderError if the optuna package is missing."""
    new(path)
    try:
        import optuna
    except ImportError as error:
        raise RunFolderError(
            "export --to optuna needs the optuna package, which is missing; pip install 'optuna>=5,<6'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    objectives = [run.objective, *([run.second] if run.second else [])]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()  # its OSError says why it can't be written, SQLite's error doesn't
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about ranges that aren't multiples of their step
        study = optuna.create_study(
            storage=f"sqlite:///{path}",
            study_name=run.name,
            directions=["maximize" if one.mode == "max" else "minimize" for one in objectives],
        )
        study.set_metric_names([one.metric for one in objectives])
        for key in ("search", "scheduler", "seed", "git_commit", "started", "host"):
            study.set_user_attr(key, run.info.get(key))
        distributions = _distributions(run)
        worth = _of_two if run.second else _of_one
        study.add_trials(
            [_as_optuna(run, trial, distributions, *worth(run, trial)) for trial in run.record.trials.values()]
        )
    return [path]


def _of_one(run: RecordedRun, trial: TrialRecord) -> tuple[Any, list[float] | None]:
    """State and value: a stopped trial becomes a pruned one.

    Optuna's best trial is the completed one with the best value, so the winner becomes completed, with the value by
    which it won, and one that has a better value but didn't win becomes pruned.
    """
    from optuna.trial import TrialState

    found, won = run.record.best_of(trial.trial), run.record.winning_value
    if run.best is trial and found and won is not None:
        found = found[0], won
    state = TrialState.COMPLETE if run.best is trial else _state(trial)
    if state is TrialState.COMPLETE and found and won is not None and run.best is not trial:
        state = TrialState.PRUNED if (found[1] >= won if run.mode == "max" else found[1] <= won) else state
    if state is TrialState.COMPLETE and found is None:
        state = TrialState.FAIL
    return state, [found[1]] if found and state is not TrialState.FAIL else None


def _of_two(run: RecordedRun, trial: TrialRecord) -> tuple[Any, list[float] | None]:
    """State and values: Optuna's best trials are the run's front, also those of it that were stopped early."""
    from optuna.trial import TrialState

    point = next((one for one in all_points(run) if one.trial is trial), None)
    if point is None:
        state = _state(trial)
        return TrialState.PRUNED if state is TrialState.COMPLETE else state, None
    on_front = any(one.trial is trial for one in front_of(run))
    return TrialState.COMPLETE if on_front else _state(trial), [point.value, point.cost]


def _state(trial: TrialRecord) -> Any:
    from optuna.trial import TrialState

    states = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
    return states.get(trial.status, TrialState.RUNNING)


def _as_optuna(
    run: RecordedRun, trial: TrialRecord, distributions: dict[str, Any], state: Any, values: list[float] | None
) -> Any:
    from optuna.trial import create_trial

    found = run.record.best_of(trial.trial)
    params = {n: distributions[n][1](v) for n, v in _searched(run, trial).items() if n in distributions}
    attributes = {
        "trial": trial.trial,
        "status": trial.status,
        "cause": trial.cause,
        "message": trial.message,
        "seed": trial.seed,
        "best_epoch": found and found[0],
        "running_seconds": round(trial.running_seconds, 3),
        **({f"metrics/{name}": value for name, value in trial.epochs[found[0]].metrics.items()} if found else {}),
    }
    made = create_trial(
        state=state,
        values=values,
        params=params,
        distributions={name: distributions[name][0] for name in params},
        intermediate_values={
            e.epoch: float(e.metrics[run.metric]) for e in trial.epochs.values() if finite(e.metrics.get(run.metric))
        },
        user_attrs=attributes,
    )
    made.datetime_start = _local(trial.started)
    if state.is_finished() and trial.ended is not None:
        made.datetime_complete = _local(trial.ended)
    return made


def _searched(run: RecordedRun, trial: TrialRecord) -> dict[str, Any]:
    """The part of the configuration that is in the space, under dotted names."""
    return run.space.flatten(run.space.project(trial.config))


def _local(seconds: float) -> datetime:
    """The time for Optuna: local, without a zone."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().replace(tzinfo=None)


def _distributions(run: RecordedRun) -> dict[str, Any]:
    """For each dimension Optuna's distribution, wide enough for every value that was tried, and what makes a value
    Optuna's.
    """
    tried: dict[str, list[Any]] = {name: [] for name in run.space.dimensions}
    for trial in run.record.trials.values():
        for name, value in _searched(run, trial).items():
            if name in tried:
                tried[name].append(value)
    return {name: _distribution(run.space.dimensions[name], values) for name, values in tried.items() if values}


def _distribution(domain: Domain, tried: list[Any]) -> tuple[Any, Callable[[Any], Any]]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Choice) or not all(is_number(value) for value in tried):
        options = domain.options if isinstance(domain, Choice) else ()
        values = {canonical(value): value for value in (*options, *tried)}.values()
        label = _param if len({*map(_param, values)}) == len(values) else repr  # to Optuna, True is 1
        return CategoricalDistribution([*map(label, values)]), label
    low, high = min(tried), max(tried)
    if isinstance(domain, Float | Integer):
        low, high = min(low, domain.low), max(high, domain.high)
    log = bool(getattr(domain, "log", False))
    if isinstance(domain, Integer):
        return IntDistribution(int(low), int(high), log=log), _param
    return FloatDistribution(float(low), float(high), log=log), _param


def _param(value: Any) -> Any:
    """A value that Optuna allows as a category; anything else as text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
