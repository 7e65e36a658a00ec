"""Configurations to start a study from, suggested by the studies that come with tuner."""

from __future__ import annotations

from tuner.search import Grid, suggested_by_portfolio
from tuner.space import Config
from tuner.study import Study

MOST = 5  # slightly better than 1 or 3 (benchmarks/small_searches.py)
METRICS = ("val_accuracy", "val_f1", "val_top5_accuracy")  # what was good for accuracy is good for these


def of_portfolio(study: Study, *, less: int) -> tuple[Config, ...]:
    """Configurations for a study of the trainer's own hyperparameters; empty for others.

    Together with the `less` configurations of earlier runs they are at most half of the trials. A grid gets none: it is
    tried completely anyway.
    """
    trial = study.declared_trial
    if study.warm_start is None or not study.warm_start.portfolio or not trial.portfolio:
        return ()
    if study.metric not in METRICS or isinstance(study.search, Grid):
        return ()
    defaults = {name: row.default for name, row in trial.known_hyperparameters.items() if row.default is not None}
    most = min(MOST, _trials(study) // 2 - less)
    return suggested_by_portfolio(study.problem, trial.portfolio, defaults, most)


def describe_portfolio(configs: tuple[Config, ...]) -> str:
    """The text of the notice."""
    count = f"{len(configs)} configuration{'s' if len(configs) > 1 else ''}"
    return f"starts with {count} that did well on other data (tuner's portfolio); --no-portfolio leaves them out"


def _trials(study: Study) -> int:
    """About how many trials there will be."""
    budget = study.budget
    if study.trials is not None:
        return study.trials
    return 2 * MOST if budget.total_epochs is None else int(budget.total_epochs // budget.max_epochs)
