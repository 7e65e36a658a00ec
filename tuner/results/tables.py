"""A run's tables: a row per trial, a row per trial and epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from tuner.history.event_lines import finite
from tuner.history.records import CAUSES, STATUSES, RunRecord, TrialRecord, flat_config
from tuner.results.findings import Advice
from tuner.results.front import front_of, second_of
from tuner.results.importance import Importance
from tuner.results.run import RecordedRun
from tuner.storage.folder import Folder
from tuner.text import in_utf8, spreadsheet_cell
from tuner.trial.inference_cost import COSTS, KnownCosts

CONFIG, METRIC, COST = "config/", "metric/", "cost/"
NONE = "none"  # in CSV: pandas reads "None" as a missing value
_TRIAL_TYPES = {
    "trial": "str",
    "number": "int64",
    "epochs": "int64",
    "best_epoch": "Int64",
    "seconds": "float64",
    "losses": "int64",
    "seed": "int64",
    "configuration": "int64",
    "message": "str",
}
_CONFIGURATION_TYPES = {
    "configuration": "int64",
    "trial": "str",
    "trials": "int64",
    "seeds": "int64",
    "error": "float64",
    "lowest": "float64",
    "highest": "float64",
}
_HISTORY_TYPES = {"trial": "str", "epoch": "int64", "decision": "str"}
_TRIAL_COLUMNS = (*_TRIAL_TYPES, "status", "cause", "started", "ended")
_HISTORY_COLUMNS = ("trial", "epoch", "time", "decision")


def trials_table(record: RunRecord, costs: KnownCosts | None = None, second: str | None = None) -> pd.DataFrame:
    """A row per trial, in the order in which trials started.

    Columns: trial, number, status, cause, epochs, best_epoch (whose network stands for the trial), under the metric's
    own name (`metric/NAME` if that is one of these columns') the value by which trials are compared: for a completed
    one the mean of its last values, for any other its best, see `tuner.history.worth`; started and ended (UTC), seconds
    (of running), losses, seed, configuration (counted from 0; trials of one number train the same configuration with
    different seeds), message, study_version (only if the study file was edited during the run: trials of version 2 were
    trained, at least in part, with the edited one), `cost/NAME` for each of `COSTS` if the study names costs of
    networks, `metric/NAME` for a second metric that trials report, after `best_epoch`, then `config/NAME` for each
    hyperparameter, with the value that
    the trial was given: NaN if the trial doesn't have it, or pandas' NA in a column of objects.
    """
    metric = metric_column(record.metric)
    rows = [in_utf8(_trial_row(record, trial, metric)) for trial in record.trials.values()]
    leading = ["trial", "number", "status", "cause", "epochs", "best_epoch", metric]
    leading += ["started", "ended", "seconds", "losses", "seed", "configuration", "message"]
    if any(trial.study_version > 1 for trial in record.trials.values()):
        leading.append("study_version")
    if costs is not None:
        leading += [COST + name for name in COSTS]
        rows = [row | _costs(costs, trial) for row, trial in zip(rows, record.trials.values(), strict=True)]
    if second is not None:
        leading.append(METRIC + second)
        for row, trial in zip(rows, record.trials.values(), strict=True):
            told = trial.epochs[row["best_epoch"]].metrics.get(second) if row["best_epoch"] in trial.epochs else None
            row[METRIC + second] = told if finite(told) else None
    leading[leading.index(metric)] = metric = in_utf8(metric)
    table = _with_settings(rows, leading).astype({**_TRIAL_TYPES, metric: "float64"})
    table["status"] = pd.Categorical(table["status"], categories=list(STATUSES))
    table["cause"] = pd.Categorical(table["cause"], categories=_causes(table["cause"]))
    for column in ("started", "ended"):
        table[column] = _utc(table[column])
    return table


def _costs(costs: KnownCosts, trial: TrialRecord) -> dict[str, float]:
    known = costs.of(trial.config)
    return {} if known is None else {COST + name: getattr(known, name) for name in COSTS}


def history_table(record: RunRecord) -> pd.DataFrame:
    """A row per trial and epoch: trial, epoch, time (UTC), decision, then the reported metrics.

    A metric that has the name of one of these columns is called `metric/NAME`.
    """
    rows: list[dict[str, Any]] = [
        in_utf8(
            {
                **dict(zip(_HISTORY_COLUMNS, (trial.trial, epoch.epoch, epoch.time, epoch.decision), strict=True)),
                **{_metric_column(name, _HISTORY_COLUMNS): value for name, value in epoch.metrics.items()},
            }
        )
        for trial in record.trials.values()
        for epoch in trial.epochs.values()
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    table = pd.DataFrame(rows, columns=list(names) or list(_HISTORY_COLUMNS)).astype(_HISTORY_TYPES)
    table["time"] = _utc(table["time"])
    return table


def configurations_table(record: RunRecord) -> pd.DataFrame:
    """A row per configuration, the best first, those without a value last.

    Columns: configuration (as in the table of trials), trial (whose network stands for it), trials, seeds (with which
    it was trained to its end), under the metric's name its value, a mean if there are several seeds; the value's
    standard error, lowest and highest of the seeds; then `config/NAME` as in the table of trials.
    """
    named = metric_column(record.metric)
    metric = METRIC + named if named in _CONFIGURATION_TYPES else named
    rows = [in_utf8(_configuration_row(record, trial, metric)) for trial in record.rows()]
    leading = [*_CONFIGURATION_TYPES]
    leading.insert(leading.index("seeds") + 1, metric := in_utf8(metric))
    return _with_settings(rows, leading).astype({**_CONFIGURATION_TYPES, metric: "float64"})


def _with_settings(rows: list[dict[str, Any]], leading: list[str]) -> pd.DataFrame:
    """The table with a column for each hyperparameter; values whose type pandas would change are kept as objects."""
    settings = sorted({name for row in rows for name in row if name.startswith(CONFIG)})
    table = pd.DataFrame(rows, columns=[*leading, *settings])
    for name in settings:
        values = [row[name] for row in rows if name in row]
        kinds, kept = {*map(type, values)}, {float, str} if len(values) < len(rows) else {float, str, bool, int}
        if len(kinds) > 1 or not kinds <= kept or any(map(_is_nan, values)):
            table[name] = pd.Series([row.get(name, pd.NA) for row in rows], dtype=object)
    return table


def _configuration_row(record: RunRecord, trial: TrialRecord, metric: str) -> dict[str, Any]:
    standing, values = record.standing_of(trial.trial), record.seeds_of(trial)
    return {
        "configuration": trial.configuration,
        "trial": trial.trial,
        "trials": len(record.same_configuration(trial)),
        "seeds": len(values),
        metric: standing and standing.value,
        "error": standing and standing.error,
        "lowest": min(values, default=None),
        "highest": max(values, default=None),
        **{CONFIG + name: value for name, value in flat_config(trial.config).items()},
    }


def front_table(run: RecordedRun) -> pd.DataFrame:
    """A row for each configuration on the front of two objectives, the best in the second one first."""
    second = second_of(run)
    rows = [
        {"trial": one.trial.trial, run.metric: one.value, second.metric: one.cost}
        | {CONFIG + name: value for name, value in flat_config(one.trial.config).items()}
        for one in (front_of(run) if second else ())
        if second
    ]
    return _with_settings(in_utf8(rows), ["trial", *([in_utf8(run.metric), in_utf8(second.metric)] if second else [])])


def best_rows(record: RunRecord, table: pd.DataFrame, count: int) -> pd.DataFrame:
    """The rows of the best configurations in a table of trials, the winner first, with their values."""
    best = {one.trial.trial: one.value for one in record.ranked()[:count]}
    places = {trial: place for place, trial in enumerate(best)}
    shown = table[table["trial"].isin(list(best))]
    told = shown.assign(**{in_utf8(metric_column(record.metric)): shown["trial"].map(best).astype("float64")})
    return told.sort_values("trial", key=lambda trials: trials.map(places))


def importance_table(found: Sequence[Importance]) -> pd.DataFrame:
    """A row per hyperparameter, those that matter most first: hyperparameter, share of the variance, standard error."""
    rows = [(one.name, one.share, one.deviation) for one in found]
    table = pd.DataFrame(rows, columns=["hyperparameter", "share", "error"])
    return table.astype({"hyperparameter": "str", "share": "float64", "error": "float64"})


def advice_table(found: Sequence[Advice]) -> pd.DataFrame:
    """A row per piece of advice, the most promising first: text, command (missing where there is none)."""
    return pd.DataFrame([(one.text, one.command) for one in found], columns=["text", "command"]).astype("str")


def write_tables(folder: Folder, record: RunRecord, costs: KnownCosts | None = None, second: str | None = None) -> None:
    """`trials.csv` and `history.csv`, replaced as a whole."""
    folder.write("trials.csv", csv_text(trials_table(record, costs, second)).encode())
    folder.write("history.csv", csv_text(history_table(record)).encode())


def csv_text(table: pd.DataFrame) -> str:
    """The table as CSV that spreadsheets open without running what looks like a formula.

    Numbers are written unchanged; texts and names of columns that begin with `=`, `+`, `-`, `@`, a tab or a line end
    get an apostrophe in front, which `tuner.text.text_of_cell` removes. Lines within a text end in LF.
    """
    texts = [name for name in table.columns if table[name].dtype == object or pd.api.types.is_string_dtype(table[name])]
    guarded = table.assign(**{name: table[name].map(_cell) for name in texts})
    for name in (name for name in texts if name.startswith(CONFIG) and table[name].dtype == object):
        guarded[name] = guarded[name].map(lambda value: str(value) if _is_nan(value) else value)  # missing is NA there
    return guarded.rename(columns=_cell).to_csv(index=False)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _cell(value: Any) -> Any:
    """A cell. A CR would end a row, because only texts with LF are quoted; the option None is written as `none`."""
    if value is None:
        return NONE
    return spreadsheet_cell(value.replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else value)


def metric_column(name: str) -> str:
    """The column of `trials_table` that holds the study's metric."""
    return METRIC + name if name.startswith(CONFIG) else _metric_column(name, _TRIAL_COLUMNS)


def _metric_column(name: str, own: tuple[str, ...]) -> str:
    """A metric's column, which must not be one of the table's own: functions like to report `epoch` or `time`."""
    return METRIC + name if name in own else name


def _causes(column: pd.Series[Any]) -> list[str]:
    """All possible causes, including those that a newer version has written."""
    return list(dict.fromkeys([*CAUSES, *column.dropna()]))


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
        "configuration": trial.configuration,
        "message": trial.message,
        "study_version": trial.study_version,
        **{CONFIG + name: value for name, value in flat_config(trial.config).items()},
    }
