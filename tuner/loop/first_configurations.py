"""Configurations to start a study from, suggested by the studies that come with tuner."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuner.errors import switched_off
from tuner.results.wording import plural
from tuner.search import Grid, suggested_by_portfolio, usual_names
from tuner.space import Config
from tuner.study.declaration import Study
from tuner.trial import Trial

MOST = 5  # slightly better than 1 or 3 (benchmarks/small_searches.py)
METRICS = ("val_accuracy", "val_f1", "val_top5_accuracy")  # what was good for accuracy is good for these
# such metrics, by the names that functions give them: val_acc, top5_accuracy, macro_f1
ACCURACIES = re.compile("(?<![a-z])(acc|accuracy|f1)(?![a-z])", re.IGNORECASE)


def of_portfolio(study: Study, *, less: int) -> tuple[Config, ...]:
    """Configurations for a study of the trainer's own hyperparameters, or of a function's usual ones; else none.

    Together with the `less` configurations of earlier runs they are at most half of the trials. A grid gets none: it is
    tried completely anyway.
    """
    trial = study.declared_trial
    if study.warm_start is None or isinstance(study.search, Grid) or not _is_accuracy(study, trial):
        return ()
    wanted = study.warm_start.portfolio
    if not (trial.gains_by_portfolio(study.search_space.constants) if wanted is None else wanted):
        return ()
    most = min(MOST, _trials(study) // 2 - less)
    if trial.known_hyperparameters:
        return suggested_by_portfolio(study.problem, trial.portfolio, _defaults(trial), most)
    names = usual_names(study.search_space)
    return suggested_by_portfolio(study.problem, trial.portfolio, _implied(names), most, names=names)


def describe_portfolio(configs: tuple[Config, ...]) -> str:
    """The text of the notice."""
    count, without = plural(len(configs), "configuration"), switched_off("--no-portfolio", "portfolio")
    return f"starts with {count} that did well on other data (tuner's portfolio); {without} leaves them out"


def _is_accuracy(study: Study, trial: Trial) -> bool:
    if trial.known_hyperparameters:
        return study.metric in METRICS and METRICS[0] in trial.directions
    return study.mode == "max" and ACCURACIES.search(study.metric) is not None


def _defaults(trial: Trial) -> dict[str, Any]:
    return {name: row.default for name, row in trial.known_hyperparameters.items() if row.default is not None}


def _implied(names: Mapping[str, str]) -> dict[str, Any]:
    """What the names of a function's hyperparameters say of others: what has momentum is SGD."""
    return {"optimizer": "sgd"} if "momentum" in names.values() else {}


def _trials(study: Study) -> int:
    """About how many trials there will be."""
    budget = study.budget
    if study.trials is not None:
        return study.trials
    return 2 * MOST if budget.total_epochs is None else int(budget.total_epochs // budget.max_epochs)
