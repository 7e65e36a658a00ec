"""Configurations and outcomes of the trials that reported a value, for figures of the space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.history.records import TrialRecord
from tuner.plots.marks import in_full
from tuner.plots.scales import ABSENT, Floats, Scale, scale_of
from tuner.results.run import RecordedRun
from tuner.space import Domain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Tried:
    """The trials and their results.

    Attributes:
        trials: [N] in their order; failed ones don't count
        values: [N] the value of each in the metric
        epochs: [N] trained epochs
        full: [N] bool, whether that was the full training
        settings: hyperparameter -> [N] its values, ABSENT if a configuration lacks it; only those that a trial had
        domains: of all hyperparameters
    """

    trials: list[TrialRecord]
    values: Floats
    epochs: list[int]
    full: list[bool]
    settings: dict[str, list[Any]]
    domains: dict[str, Domain]

    def scale(self, name: str) -> Scale:
        """The axis of a hyperparameter."""
        return scale_of(self.domains[name], self.settings[name])

    def best(self, count: int, mode: str) -> Tried:
        """The best trials, at most this many, still in their order."""
        if len(self.trials) <= count:
            return self
        ranked = np.argsort(-self.values if mode == "max" else self.values, kind="stable")
        kept = sorted(ranked[:count].tolist())
        settings = {name: [values[place] for place in kept] for name, values in self.settings.items()}
        settings = {name: values for name, values in settings.items() if any(value is not ABSENT for value in values)}
        return Tried(
            trials=[self.trials[place] for place in kept],
            values=self.values[kept],
            epochs=[self.epochs[place] for place in kept],
            full=[self.full[place] for place in kept],
            settings=settings,
            domains=self.domains,
        )

    def table(self, metric: str) -> pd.DataFrame:
        """A row per trial: trial, number, epochs trained, value, and each hyperparameter by its name.

        A hyperparameter that isn't part of a configuration is "not used", the option None is "None".
        """
        import pandas as pd

        columns: dict[str, Any] = {
            "trial": [trial.trial for trial in self.trials],
            "number": [trial.number for trial in self.trials],
            "trained": self.epochs,
            "in full": self.full,
        }
        taken = {*columns, metric}
        for name, values in self.settings.items():
            heading = f"{name} (setting)" if name in taken else name
            columns[heading] = pd.Series([_shown(value) for value in values])
        return pd.DataFrame(columns | {metric: self.values})


def tried(run: RecordedRun) -> Tried:
    """The trials of a run that reported a value."""
    reported = run.record.reported()
    trials = [one.trial for one in reported]
    flats = [_searched(run, trial) for trial in trials]
    names = [name for name in run.space.dimensions if any(name in flat for flat in flats)]
    return Tried(
        trials=trials,
        values=np.array([one.value for one in reported], dtype=float),
        epochs=[trial.epoch for trial in trials],
        full=[in_full(run, trial) for trial in trials],
        settings={name: [flat.get(name, ABSENT) for flat in flats] for name in names},
        domains=dict(run.space.dimensions),
    )


def _searched(run: RecordedRun, trial: TrialRecord) -> dict[str, Any]:
    flat = run.space.flatten(run.space.project(trial.config))
    return {name: flat[name] for name in run.space.dimensions if name in flat}


def _shown(value: Any) -> Any:
    return str(value) if value is ABSENT or value is None else value
