"""Run folders made by the real search loop, read back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow.fs import LocalFileSystem

from tests.loop.simulation import build, drive, study
from tuner import ASHA, Random, Run, find_runs, load_run
from tuner.errors import RunFolderError
from tuner.history.events import EventLog, read_events
from tuner.history.records import RunRecord
from tuner.history.run_info import FORMAT, write_info
from tuner.lifecycle.description import function_sources
from tuner.results.tables import write_tables
from tuner.storage.folder import LocalFolder
from tuner.storage.object_folder import ObjectFolder


def make_run(
    folder: Path,
    *,
    started: str = "2026-01-31T09:30:00+00:00",
    status: str = "finished",
    says_function: bool = True,
    **changes: Any,
) -> Run:
    """A run of a real search, without Ray."""
    declared = study(**{"search": Random(sobol=False), "scheduler": ASHA(grace_epochs=3), **changes})
    loop = build(declared, folder)
    drive(loop)
    loop.end()
    loop.close()
    write_tables(LocalFolder(folder), loop.record)
    info = {
        "format": FORMAT,
        "study": "simulated",
        "metric": "loss",
        "mode": "min",
        "status": status,
        "started": started,
        "function_sources": function_sources(declared) if says_function else None,
        "trials": loop.record.counts(),
    }
    write_info(LocalFolder(folder), {**info, "pid": 2**22 + 1, "host": __import__("platform").node(), "report": None})
    return load_run(folder)


# Events


def test_a_torn_last_line_is_passed_over_and_the_next_driver_writes_a_new_segment(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    log = EventLog(folder)
    log.append("notice", message="one")
    log.close()
    with (tmp_path / "events/000001.jsonl").open("ab") as file:
        file.write(b'{"event": "notice", "mess')
    log = EventLog(folder)
    log.append("notice", message="two")
    log.close()
    assert folder.files("events") == ["000001.jsonl", "000002.jsonl"]
    assert [event["message"] for event in read_events(folder)] == ["one", "two"]


def test_events_are_plain_json_whatever_was_reported(tmp_path: Path) -> None:
    import torch

    metrics = {"numpy": np.float32(0.5), "torch": torch.tensor(2), "nan": float("nan"), "tuple": (1, 2)}
    log = EventLog(LocalFolder(tmp_path))
    event = log.append("epoch_reported", metrics=metrics)
    assert event["metrics"] == {"numpy": 0.5, "torch": 2, "nan": None, "tuple": [1, 2]}
    line = (tmp_path / "events/000001.jsonl").read_text()
    assert json.loads(line, parse_constant=lambda _: pytest.fail("no JSON")) | {"sum": ""} == {**event, "sum": ""}


def test_an_event_is_on_disk_before_append_returns(tmp_path: Path) -> None:
    EventLog(LocalFolder(tmp_path)).append("notice", message="now")
    assert [event["message"] for event in read_events(LocalFolder(tmp_path))] == ["now"]


# Folders


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("run.json", b"long content")
    folder.write("run.json", b"short")
    assert folder.read("run.json") == b"short"
    assert folder.files() == ["run.json"]


def test_an_object_store_gets_whole_segments_and_gives_everything_back(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "best").mkdir()
    folder = ObjectFolder("s3://bucket/run", LocalFileSystem(), str(tmp_path))
    log = EventLog(folder)
    log.append("notice", message="held back")
    assert folder.files("events") == []
    log.close()
    assert [event["message"] for event in read_events(folder)] == ["held back"]
    folder.write("best/model.json", b"{}")
    assert folder.folders() == ["best", "events"]
    assert folder.exists("best/model.json")
    fetched = folder.fetch("best", tmp_path.parent / f"{tmp_path.name}-copy")
    assert (fetched / "model.json").read_bytes() == b"{}"
    folder.delete("best")
    folder.delete("best")
    assert folder.folders() == ["events"]
    assert folder.child("best").uri == "s3://bucket/run/best"


# Records


def test_the_record_says_how_each_trial_ended_and_which_is_best(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    trials = run.record.trials.values()
    assert {trial.status for trial in trials} == {"completed", "stopped"}
    best = min(trials, key=lambda trial: min(e.metrics["loss"] for e in trial.epochs.values()))
    assert run.best is best
    assert run.best_epoch == 9
    assert run.record.epochs() == sum(trial.epoch for trial in trials)


def test_a_failed_trial_never_wins_and_the_earlier_of_equals_does() -> None:
    record = RunRecord("accuracy", "max")
    for number, (value, status) in enumerate(
        [(0.5, "completed"), (0.9, "failed"), (0.7, "completed"), (0.7, "stopped")]
    ):
        trial = f"{number:05d}"
        record.apply({"event": "trial_started", "time": 0.0, "trial": trial, "number": number, "config": {}, "seed": 0})
        record.apply(
            {
                "event": "epoch_reported",
                "time": 1.0,
                "trial": trial,
                "epoch": 1,
                "metrics": {"accuracy": value},
                "decision": "stop",
            }
        )
        record.apply({"event": "trial_ended", "time": 2.0, "trial": trial, "status": status, "cause": "error"})
    assert record.best_trial() is record.trials["00002"]
    assert record.failures() == {"error": 1}


def test_an_epoch_trained_again_counts_once_with_its_newer_value() -> None:
    record = RunRecord("loss", "min")
    record.apply({"event": "trial_started", "time": 0.0, "trial": "00000", "number": 0, "config": {}, "seed": 0})
    for value in (0.1, 0.4):
        record.apply(
            {
                "event": "epoch_reported",
                "time": 1.0,
                "trial": "00000",
                "epoch": 1,
                "metrics": {"loss": value},
                "decision": "continue",
            }
        )
    assert record.trials["00000"].epoch == 1
    assert record.best_of("00000") == (1, 0.4)


# Runs


def test_the_summary_has_the_contracts_keys_and_adds_up(tmp_path: Path) -> None:
    summary = make_run(tmp_path).summary()
    assert list(summary) == ["run", "status", "best", "trials", "failures", "wall_seconds", "report"]
    assert list(summary["trials"]) == ["total", "completed", "stopped", "failed"]
    assert summary["trials"]["total"] == summary["trials"]["completed"] + summary["trials"]["stopped"] == 6
    assert (summary["run"], summary["status"]) == (str(tmp_path), "finished")
    assert json.loads(json.dumps(summary)) == summary


def test_a_run_whose_driver_is_gone_was_interrupted(tmp_path: Path) -> None:
    assert make_run(tmp_path, status="running").status == "interrupted"


def test_runs_are_found_newest_first_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "1", started="2026-01-01T00:00:00+00:00")
    make_run(tmp_path / "b" / "1", started="2026-03-01T00:00:00+00:00")
    make_run(tmp_path / "a" / "2", started="2026-02-01T00:00:00+00:00")
    (tmp_path / "a" / "notes").mkdir()
    (tmp_path / "c" / "broken").mkdir(parents=True)
    (tmp_path / "c" / "broken" / "run.json").write_text("{")
    names = [str(Path(run.path).relative_to(tmp_path)) for run in find_runs(tmp_path)]
    assert names == ["b/1", "a/2", "a/1"]
    assert load_run(tmp_path).path == str(tmp_path / "b" / "1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "run.json needs to be JSON, got a damaged one in "),
        ("[]", "run.json needs to describe a run, got something else in "),
        (
            json.dumps({"format": FORMAT + 1, "study": "s", "metric": "m", "mode": "max", "status": "finished"}),
            f"this tuner reads runs up to format {FORMAT}, got format {FORMAT + 1} in ",
        ),
    ],
)
def test_a_run_folder_that_cannot_be_read_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError) as caught:
        load_run(tmp_path)
    assert str(caught.value).startswith(message)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RunFolderError, match=r"^a run is a folder with run\.json, got '.*', with none in it or below it"
    ):
        load_run(tmp_path / "nowhere")


# Tables


def test_the_tables_have_typed_columns(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    trials, history = run.trials, run.history
    assert len(trials) == 6
    assert len(history) == run.record.epochs()
    assert isinstance(trials["status"].dtype, pd.CategoricalDtype)
    assert str(trials["started"].dtype).endswith("UTC]")
    assert trials["config/x"].dtype == np.float64
    assert list(history.columns) == ["trial", "epoch", "time", "decision", "loss"]
    best = history.loc[history["loss"].idxmin()]
    assert run.best is not None
    assert (best["trial"], best["epoch"]) == (run.best.trial, run.best_epoch)


def test_the_csv_files_hold_the_tables(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    read = pd.read_csv(tmp_path / "history.csv", dtype={"trial": str})
    assert read["loss"].tolist() == run.history["loss"].tolist()
    assert pd.read_csv(tmp_path / "trials.csv", dtype={"trial": str})["trial"].tolist() == run.trials["trial"].tolist()


def test_a_run_without_trials_has_empty_tables() -> None:
    from tuner.results.tables import history_table, trials_table

    record = RunRecord("loss", "min")
    assert (len(trials_table(record)), len(history_table(record))) == (0, 0)
