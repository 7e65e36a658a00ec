import io
from pathlib import Path

import pandas as pd

from tests.history.events_of_a_run import ended, fold, reported, started
from tuner.history.records import CAUSES, STATUSES, RunRecord
from tuner.results.findings import Advice
from tuner.results.importance import Importance
from tuner.results.tables import advice_table, csv_text, history_table, importance_table, trials_table, write_tables
from tuner.storage.folder import LocalFolder

TRIAL_COLUMNS = {
    "trial": "str",
    "number": "int64",
    "status": "category",
    "cause": "category",
    "epochs": "int64",
    "best_epoch": "Int64",
    "accuracy": "float64",
    "started": "datetime64[ns, UTC]",
    "ended": "datetime64[ns, UTC]",
    "seconds": "float64",
    "losses": "int64",
    "seed": "int64",
    "configuration": "int64",
    "message": "str",
}
HISTORY_COLUMNS = {"trial": "str", "epoch": "int64", "time": "datetime64[ns, UTC]", "decision": "str"}


def types(table: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in table.dtypes.items()}


def three_trials() -> RunRecord:
    return fold(
        started(0, 1_767_225_600.25, {"lr": 0.1, "net": {"width": 8}}),
        reported(0, 1, 1_767_225_602.0, accuracy=0.5, loss=1.0),
        reported(0, 2, 1_767_225_604.0, "stop", accuracy=0.25, loss=0.5),
        ended(0, "stopped", 1_767_225_604.5),
        started(1, 1_767_225_605.0, {"lr": 0.2, "optimizer": "sgd"}),
        reported(1, 1, 1_767_225_606.0, "stop", accuracy=None),
        ended(1, "failed", 1_767_225_606.0, cause="diverged", message="accuracy = nan"),
        started(2, 1_767_225_607.0, {"lr": 0.3}),
    )


def test_a_row_per_trial_in_the_order_they_started() -> None:
    table = trials_table(three_trials())
    assert types(table) == {
        **TRIAL_COLUMNS,
        "config/lr": "float64",
        "config/net.width": "object",
        "config/optimizer": "str",
    }
    assert table["trial"].tolist() == ["00000", "00001", "00002"]
    assert table["status"].tolist() == ["stopped", "failed", "running"]
    assert table["epochs"].tolist() == [2, 1, 0]
    assert table["best_epoch"].tolist() == [1, pd.NA, pd.NA]
    assert table["accuracy"].isna().tolist() == [False, True, True]
    assert table["accuracy"][0] == 0.5
    assert table["seconds"].tolist() == [4.25, 1.0, 0.0]
    assert table["message"].isna().tolist() == [True, False, True]
    assert table["config/lr"].tolist() == [0.1, 0.2, 0.3]
    assert table["config/optimizer"].isna().tolist() == [True, False, True]


def test_statuses_and_causes_are_categories_of_all_there_can_be() -> None:
    table = trials_table(three_trials())
    assert list(table["status"].cat.categories) == list(STATUSES)
    assert list(table["cause"].cat.categories) == list(CAUSES)
    assert table["cause"].isna().tolist() == [True, False, True]
    assert table["cause"][1] == "diverged"


def test_times_are_in_utc() -> None:
    trials, history = trials_table(three_trials()), history_table(three_trials())
    assert trials["started"][0] == pd.Timestamp("2026-01-01T00:00:00.25", tz="UTC")
    assert trials["ended"][0] == pd.Timestamp("2026-01-01T00:00:04.5", tz="UTC")
    assert trials["ended"].isna().tolist() == [False, False, True]
    assert history["time"][0] == pd.Timestamp("2026-01-01T00:00:02", tz="UTC")


def test_a_row_per_trial_and_epoch() -> None:
    table = history_table(three_trials())
    assert types(table) == {**HISTORY_COLUMNS, "accuracy": "float64", "loss": "float64"}
    assert table["trial"].tolist() == ["00000", "00000", "00001"]
    assert table["epoch"].tolist() == [1, 2, 1]
    assert table["decision"].tolist() == ["continue", "stop", "stop"]
    assert table["accuracy"].tolist()[:2] == [0.5, 0.25]
    assert table["loss"].isna().tolist() == [False, False, True]


def test_a_run_without_trials_has_typed_tables_without_rows() -> None:
    record = fold()
    assert (len(trials_table(record)), types(trials_table(record))) == (0, TRIAL_COLUMNS)
    assert (len(history_table(record)), types(history_table(record))) == (0, HISTORY_COLUMNS)


def test_a_metric_that_is_called_like_a_column_stands_beside_it() -> None:
    """Functions like to report `epoch=epoch`, counted from 0, and `time`."""
    record = RunRecord("seconds", "min", [started(0), reported(0, 1, 5.0, epoch=0, time=12.0, seconds=3.5)])
    history, trials = history_table(record), trials_table(record)
    assert list(history.columns) == [*HISTORY_COLUMNS, "metric/epoch", "metric/time", "seconds"]
    assert (history["epoch"][0], history["metric/epoch"][0], history["metric/time"][0]) == (1, 0, 12.0)
    assert history["time"][0] == pd.Timestamp(5, unit="s", tz="UTC")
    assert list(trials.columns).count("seconds") == 1
    assert (trials["seconds"][0], trials["metric/seconds"][0]) == (0.0, 3.5)


def test_the_files_hold_the_tables(tmp_path: Path) -> None:
    write_tables(LocalFolder(tmp_path), three_trials())
    assert (tmp_path / "trials.csv").read_text() == (
        "trial,number,status,cause,epochs,best_epoch,accuracy,started,ended,seconds,losses,seed,configuration,message,"
        "config/lr,config/net.width,config/optimizer\n"
        "00000,0,stopped,,2,1,0.5,2026-01-01 00:00:00.250+00:00,2026-01-01 00:00:04.500+00:00,4.25,0,100,0,,"
        "0.1,8,\n"
        "00001,1,failed,diverged,1,,,2026-01-01 00:00:05.000+00:00,2026-01-01 00:00:06.000+00:00,1.0,0,101,1,accuracy = nan,"
        "0.2,,sgd\n"
        "00002,2,running,,0,,,2026-01-01 00:00:07.000+00:00,,0.0,0,102,2,,0.3,,\n"
    )
    assert (tmp_path / "history.csv").read_text() == (
        "trial,epoch,time,decision,accuracy,loss\n"
        "00000,1,2026-01-01 00:00:02+00:00,continue,0.5,1.0\n"
        "00000,2,2026-01-01 00:00:04+00:00,stop,0.25,0.5\n"
        "00001,1,2026-01-01 00:00:06+00:00,stop,,\n"
    )


def test_an_option_that_is_none_is_told_from_a_setting_that_a_trial_has_not() -> None:
    record = fold(
        started(0, 0.0, {"augment": None}), started(1, 0.0, {"augment": "flip"}), started(2, 0.0, {"lr": 0.1})
    )
    table = trials_table(record)
    assert [table["config/augment"][0], table["config/augment"][1]] == [None, "flip"]
    assert table["config/augment"].isna().tolist() == [True, False, True]
    read = pd.read_csv(io.StringIO(csv_text(table)))
    assert read["config/augment"].tolist()[:2] == ["none", "flip"]
    assert pd.isna(read["config/augment"][2])


def test_a_plain_read_keeps_the_numbers_of_trials() -> None:
    read = pd.read_csv(io.StringIO(csv_text(trials_table(three_trials()))))
    assert read["number"].tolist() == [0, 1, 2]


def test_importance_and_advice_are_tables() -> None:
    importances = importance_table([Importance("lr", 0.8, 0.1), Importance("width", 0.1, 0.05)])
    assert types(importances) == {"hyperparameter": "str", "share": "float64", "error": "float64"}
    assert importances["hyperparameter"].tolist() == ["lr", "width"]
    advised = advice_table([Advice("go on", "python -m tuner resume x"), Advice("fix lr")])
    assert list(advised.columns) == ["text", "command"]
    assert advised["command"].isna().tolist() == [False, True]
    assert len(importance_table([])) == len(advice_table([])) == 0
