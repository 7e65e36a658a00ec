"""Configurations of tuner's own to start a study from: the trainer's defaults, and good ones of other data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import switched_off
from tuner.results.wording import plural
from tuner.search import Grid, Learned, of_defaults, suggested_by_portfolio, usual_names
from tuner.space import Config
from tuner.study.declaration import Study
from tuner.trial import Trial

MOST = 5  # slightly better than 1 or 3 (benchmarks/small_searches.py)
BETTER = {"schedule": "cosine"}  # than the default, where a space leaves the choice (benchmarks/small_searches.py)
METRICS = ("val_accuracy", "val_f1", "val_top5_accuracy")  # what was good for accuracy is good for these
# such metrics, by the names that functions give them: val_acc, top5_accuracy, macro_f1
ACCURACIES = re.compile("(?<![a-z])(acc|accuracy|f1)(?![a-z])", re.IGNORECASE)


def with_tuners_own(study: Study, learned: Learned) -> Learned:
    """What a study starts from: what it has `learned` from earlier runs, the trainer's defaults, then the portfolio.

    All together they are at most half of the trials. A grid gets nothing of tuner's own: it is tried completely.
    """
    if _is_switched_off(study) or isinstance(study.search, Grid):
        return learned
    taken = {study.search_space.key(config) for config in learned.configs}
    own = of_trainer(study, less=len(learned.configs))
    found = replace(learned, defaults=tuple(config for config in own if study.search_space.key(config) not in taken))
    less = len(found.configs) + len(found.defaults)
    return replace(found, portfolio=of_portfolio(study, less=less, first=found.defaults))


def of_trainer(study: Study, *, less: int) -> tuple[Config, ...]:
    """The trainer's defaults, moved into the space.

    None for a function, and for heads, of which the portfolio knows better.
    """
    domains, heads = study.search_space.dimensions, study.search_space.constants.get("finetune") == "head"
    defaults = _defaults(study.declared_trial)
    if _half_of_trials(study) <= less or heads or not defaults:
        return ()
    better = {name: value for name, value in BETTER.items() if name in domains and domains[name].contains(value)}
    return of_defaults(study.problem, defaults | better)


def of_portfolio(study: Study, *, less: int = 0, first: tuple[Config, ...] = ()) -> tuple[Config, ...]:
    """Configurations for a study of the trainer's own hyperparameters, or of a function's usual ones; else none.

    `less` configurations come before them, of which those of `first` are tuner's own.
    """
    trial = study.declared_trial
    if not _is_accuracy(study):
        return ()
    most = min(MOST - len(first), _half_of_trials(study) - less)
    if trial.known_hyperparameters:
        return suggested_by_portfolio(study.problem, trial.portfolio, _defaults(trial), most, first=first)
    names = usual_names(study.search_space)
    return suggested_by_portfolio(study.problem, trial.portfolio, _implied(names), most, names=names)


def describe_own(found: Learned) -> str:
    """The text of the notice."""
    count, without = plural(len(found.portfolio), "configuration"), switched_off("--no-portfolio", "portfolio")
    own = ["with the trainer's defaults"] * len(found.defaults)
    own += [f"with {count} that did well on other data (tuner's portfolio)"] * bool(found.portfolio)
    return f"starts {' and '.join(own)}; {without} leaves them out"


def portfolio_knows(study: Study) -> bool:
    """Whether the studies that come with tuner say something about this one, by its trial and metric, and may."""
    return not _is_switched_off(study) and bool(study.declared_trial.known_hyperparameters) and _is_accuracy(study)


def _is_switched_off(study: Study) -> bool:
    return study.warm_start is None or study.warm_start.portfolio is False


def _is_accuracy(study: Study) -> bool:
    if study.declared_trial.known_hyperparameters:
        return study.metric in METRICS and METRICS[0] in study.declared_trial.directions
    return study.mode == "max" and ACCURACIES.search(study.metric) is not None


def _defaults(trial: Trial) -> dict[str, Any]:
    return {name: row.default for name, row in trial.known_hyperparameters.items()}


def _implied(names: Mapping[str, str]) -> dict[str, Any]:
    """What the names of a function's hyperparameters say of others: what has momentum is SGD."""
    return {"optimizer": "sgd"} if "momentum" in names.values() else {}


def _half_of_trials(study: Study) -> int:
    """Half of about how many trials there will be."""
    budget = study.budget
    if study.trials is not None:
        return study.trials // 2
    return MOST if budget.total_epochs is None else int(budget.total_epochs // budget.max_epochs) // 2
