"""A run's tables: a row per trial, a row per trial and epoch."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tuner.results.folder import Folder
from tuner.results.records import CAUSES, STATUSES, RunRecord, TrialRecord, flat_config

CONFIG = "config/"


def trials_table(record: RunRecord) -> pd.DataFrame:
    """A row per trial in the order they started.

    Columns: trial, number, status, cause, epochs, best_epoch, the metric's best value under its own name, started and
    ended (UTC), seconds (of running), losses, seed, message, then `config/NAME` for each hyperparameter (missing where
    the trial hasn't it).
    """
    rows = [_trial_row(record, trial) for trial in record.trials.values()]
    leading = ["trial", "number", "status", "cause", "epochs", "best_epoch", record.metric]
    leading += ["started", "ended", "seconds", "losses", "seed", "message"]
    settings = sorted({name for row in rows for name in row if name.startswith(CONFIG)})
    table = pd.DataFrame(rows, columns=[*leading, *settings])
    table["status"] = pd.Categorical(table["status"], categories=list(STATUSES))
    table["cause"] = pd.Categorical(table["cause"], categories=list(CAUSES))
    for column in ("started", "ended"):
        table[column] = pd.to_datetime(table[column], unit="s", utc=True)
    for name in settings:
        table[name] = table[name].infer_objects()
    return table


def history_table(record: RunRecord) -> pd.DataFrame:
    """A row per trial and epoch: trial, epoch, time (UTC), decision, then the reported metrics."""
    rows: list[dict[str, Any]] = [
        {"trial": trial.trial, "epoch": epoch.epoch, "time": epoch.time, "decision": epoch.decision, **epoch.metrics}
        for trial in record.trials.values()
        for epoch in trial.epochs.values()
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    table = pd.DataFrame(rows, columns=list(names) or ["trial", "epoch", "time", "decision"])
    table["time"] = pd.to_datetime(table["time"], unit="s", utc=True)
    return table


def write_tables(folder: Folder, record: RunRecord) -> None:
    """`trials.csv` and `history.csv`, replaced as a whole."""
    folder.write("trials.csv", trials_table(record).to_csv(index=False).encode())
    folder.write("history.csv", history_table(record).to_csv(index=False).encode())


def _trial_row(record: RunRecord, trial: TrialRecord) -> dict[str, Any]:
    best = record.best_of(trial.trial)
    return {
        "trial": trial.trial,
        "number": trial.number,
        "status": trial.status,
        "cause": trial.cause,
        "epochs": trial.epoch,
        "best_epoch": best[0] if best else None,
        record.metric: best[1] if best else None,
        "started": trial.started,
        "ended": trial.ended,
        "seconds": round(trial.running_seconds, 3),
        "losses": trial.losses,
        "seed": trial.seed,
        "message": trial.message,
        **{CONFIG + name: value for name, value in flat_config(trial.config).items()},
    }
