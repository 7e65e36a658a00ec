"""A run's tables: a row per trial, a row per trial and epoch."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tuner.results.folder import Folder
from tuner.results.records import CAUSES, STATUSES, RunRecord, TrialRecord, flat_config

CONFIG, METRIC = "config/", "metric/"
_TRIAL_TYPES = {
    "trial": "str",
    "number": "int64",
    "epochs": "int64",
    "best_epoch": "Int64",
    "seconds": "float64",
    "losses": "int64",
    "seed": "int64",
    "message": "str",
}
_HISTORY_TYPES = {"trial": "str", "epoch": "int64", "decision": "str"}
_TRIAL_COLUMNS = (*_TRIAL_TYPES, "status", "cause", "started", "ended")
_HISTORY_COLUMNS = ("trial", "epoch", "time", "decision")


def trials_table(record: RunRecord) -> pd.DataFrame:
    """A row per trial in the order they started.

    Columns: trial, number, status, cause, epochs, best_epoch, the metric's best value under its own name
    (`metric/NAME` where that is one of these columns'), started and ended (UTC), seconds (of running), losses, seed,
    message, study_version (only where the study file was edited in mid-run: trials of version 2 were trained, in part
    at least, as the edited one says), then `config/NAME` for each hyperparameter (missing where the trial hasn't it).
    """
    metric = metric_column(record.metric)
    rows = [_trial_row(record, trial, metric) for trial in record.trials.values()]
    leading = ["trial", "number", "status", "cause", "epochs", "best_epoch", metric]
    leading += ["started", "ended", "seconds", "losses", "seed", "message"]
    if any(trial.study_version > 1 for trial in record.trials.values()):
        leading.append("study_version")
    settings = sorted({name for row in rows for name in row if name.startswith(CONFIG)})
    table = pd.DataFrame(rows, columns=[*leading, *settings]).astype({**_TRIAL_TYPES, metric: "float64"})
    table["status"] = pd.Categorical(table["status"], categories=list(STATUSES))
    table["cause"] = pd.Categorical(table["cause"], categories=list(CAUSES))
    for column in ("started", "ended"):
        table[column] = _utc(table[column])
    return table


def history_table(record: RunRecord) -> pd.DataFrame:
    """A row per trial and epoch: trial, epoch, time (UTC), decision, then the reported metrics.

    A metric that has the name of one of these columns is called `metric/NAME`.
    """
    rows: list[dict[str, Any]] = [
        {
            **dict(zip(_HISTORY_COLUMNS, (trial.trial, epoch.epoch, epoch.time, epoch.decision), strict=True)),
            **{_metric_column(name, _HISTORY_COLUMNS): value for name, value in epoch.metrics.items()},
        }
        for trial in record.trials.values()
        for epoch in trial.epochs.values()
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    table = pd.DataFrame(rows, columns=list(names) or list(_HISTORY_COLUMNS)).astype(_HISTORY_TYPES)
    table["time"] = _utc(table["time"])
    return table


def write_tables(folder: Folder, record: RunRecord) -> None:
    """`trials.csv` and `history.csv`, replaced as a whole."""
    folder.write("trials.csv", trials_table(record).to_csv(index=False).encode())
    folder.write("history.csv", history_table(record).to_csv(index=False).encode())


def metric_column(name: str) -> str:
    """The column of `trials_table` that holds the study's metric."""
    return _metric_column(name, _TRIAL_COLUMNS)


def _metric_column(name: str, own: tuple[str, ...]) -> str:
    """A metric's column, which must not be one of the table's own: functions like to report `epoch` or `time`."""
    return METRIC + name if name in own else name


def _utc(seconds: pd.Series[Any]) -> pd.Series[Any]:
    return pd.to_datetime(seconds.astype("float64"), unit="s", utc=True).dt.as_unit("ns")


def _trial_row(record: RunRecord, trial: TrialRecord, metric: str) -> dict[str, Any]:
    best = record.best_of(trial.trial)
    return {
        "trial": trial.trial,
        "number": trial.number,
        "status": trial.status,
        "cause": trial.cause,
        "epochs": trial.epoch,
        "best_epoch": best[0] if best else None,
        metric: best[1] if best else None,
        "started": trial.started,
        "ended": trial.ended,
        "seconds": round(trial.running_seconds, 3),
        "losses": trial.losses,
        "seed": trial.seed,
        "message": trial.message,
        "study_version": trial.study_version,
        **{CONFIG + name: value for name, value in flat_config(trial.config).items()},
    }
