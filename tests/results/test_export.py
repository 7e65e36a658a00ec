import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX.proto.api_pb2 import Status
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from tests.history.events_of_a_run import ended, event, started
from tests.results.simulated import SPACE, simulated
from tuner import Budget, Run, choice, load_run, uniform
from tuner.errors import RunFolderError
from tuner.results import export
from tuner.results.export import EXPORTS, Kind

optuna = pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulated(tmp_path_factory.mktemp("run"))


def test_tables_come_back_from_csv_and_parquet(run: Run, tmp_path: Path) -> None:
    assert [file.name for file in export(run, "csv", tmp_path / "new" / "csv")] == ["trials.csv", "history.csv"]
    trials = pd.read_csv(tmp_path / "new/csv/trials.csv", dtype={"trial": str})
    assert trials["trial"].tolist() == run.trials["trial"].tolist()
    export(run, "parquet", tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "history.parquet"), run.history)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "trials.parquet"), run.trials)


def test_each_kind_of_export_has_a_writer_and_another_is_refused(run: Run, tmp_path: Path) -> None:
    assert tuple(EXPORTS) == get_args(Kind)
    with pytest.raises(RunFolderError) as caught:
        export(run, "xlsx", tmp_path)  # type: ignore[arg-type]
    assert str(caught.value) == "an export is one of csv, parquet, optuna, tensorboard, got 'xlsx'; choose one"
    assert list(tmp_path.iterdir()) == []


def test_a_column_of_numbers_and_names_is_text_in_parquet(tmp_path: Path) -> None:
    space = {"lr": uniform(0, 1), "depth": 1, "size": choice(["default", 3, None])}
    run = simulated(tmp_path / "run", space=space)
    export(run, "parquet", tmp_path)
    sizes = pd.read_parquet(tmp_path / "trials.parquet")["config/size"]
    assert set(sizes.dropna()) == {"default", "3"}


def test_optuna_has_the_front_of_two_metrics(tmp_path: Path) -> None:
    two = {"metric": ["loss", "width"], "mode": ["min", "max"]}
    run = simulated(tmp_path / "run", more=lambda config: {"width": float(config["width"])}, **two)
    export(run, "optuna", tmp_path / "study.db")
    study = optuna.load_study(study_name="simulated", storage=f"sqlite:///{tmp_path}/study.db")
    assert study.metric_names == ["loss", "width"]
    front = run.front.sort_values("trial")
    best = sorted(study.best_trials, key=lambda trial: trial.user_attrs["trial"])
    assert [trial.user_attrs["trial"] for trial in best] == front["trial"].tolist()
    assert [trial.values for trial in best] == front[["loss", "width"]].to_numpy().tolist()


def test_optuna_loads_the_study_with_the_right_best_trial(run: Run, tmp_path: Path) -> None:
    export(run, "optuna", tmp_path / "new" / "study.db")
    study = optuna.load_study(study_name="simulated", storage=f"sqlite:///{tmp_path}/new/study.db")
    assert study.direction.name == "MINIMIZE"
    assert study.metric_names == ["loss"]
    assert run.best is not None
    best = study.best_trial
    assert (best.user_attrs["trial"], best.value) == (run.best.trial, run.record.winning_value)
    assert best.params == run.space.flatten(run.best.config)
    assert len(study.trials) == len(run.record.trials)
    for found, trial in zip(study.trials, run.record.trials.values(), strict=True):
        assert (found.user_attrs["trial"], found.user_attrs["status"]) == (trial.trial, trial.status)
        losses = {e.epoch: e.metrics["loss"] for e in trial.epochs.values() if e.metrics["loss"] is not None}
        assert found.intermediate_values == losses
        expected = {"completed": "COMPLETE", "stopped": "PRUNED", "failed": "FAIL"}[trial.status]
        assert found.state.name == ("COMPLETE" if trial is run.best else expected)
        assert found.datetime_start.astimezone().timestamp() == pytest.approx(trial.started, abs=1e-3)
    distributions = best.distributions | {n: d for t in study.trials for n, d in t.distributions.items()}
    assert set(distributions) == set(SPACE)
    assert (distributions["lr"].log, distributions["lr"].low, distributions["lr"].high) == (True, 1e-4, 1e-1)
    assert (distributions["depth"].low, distributions["depth"].high) == (1, 8)
    assert distributions["kind"].choices == ("a", "b")


@pytest.mark.parametrize("reports", [0, 5])
def test_a_search_that_has_not_ended_can_be_exported(tmp_path: Path, reports: int) -> None:
    run = simulated(tmp_path / "run", reports=reports)
    export(run, "optuna", tmp_path / "study.db")
    assert len(optuna.load_study(study_name="simulated", storage=f"sqlite:///{tmp_path}/study.db").trials) == len(
        run.record.trials
    )


@pytest.mark.slow
def test_the_dashboard_serves_it(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard")
    export(run, "optuna", tmp_path / "study.db")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("optuna-dashboard"), f"sqlite:///{tmp_path}/study.db"]
    server = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        summary = _ask(f"http://127.0.0.1:{port}/api/studies")["study_summaries"][0]
        assert summary["study_name"] == "simulated"
        details = _ask(f"http://127.0.0.1:{port}/api/studies/{summary['study_id']}?after=0")
        assert len(details["trials"]) == len(run.record.trials)
        assert [trial["values"] for trial in details["best_trials"]] == [[run.record.winning_value]]
    finally:
        server.terminate()
        server.wait(300)


def _ask(address: str) -> dict[str, object]:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(address, timeout=300) as answer:
                return json.load(answer)  # type: ignore[no-any-return]
        except OSError:
            assert time.monotonic() < deadline, "the dashboard didn't answer"
            time.sleep(0.2)


def test_what_cannot_be_written_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(run, "csv", tmp_path)
    with pytest.raises(RunFolderError, match=r"export writes new files, got '.*trials\.csv', which exists; remove it"):
        export(run, "csv", tmp_path)
    with pytest.raises(
        RunFolderError, match=r"export needs a place to write to, got '.*trials\.csv/x' \(Not a directory"
    ):
        export(run, "parquet", tmp_path / "trials.csv" / "x")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RunFolderError, match="needs the optuna package, which is missing; pip install"):
        export(run, "optuna", tmp_path / "study.db")


def test_a_stopped_winner_is_optunas_best_trial(tmp_path: Path) -> None:
    seen: list[float] = []

    def reaches_the_target(config: dict[str, Any], epoch: int) -> float:
        """One of the trials does so after an epoch, when others were trained to their end."""
        if config["lr"] not in seen:
            seen.append(config["lr"])
        return 0.0 if config["lr"] in seen[7:8] else 1.0 + config["lr"] / epoch

    budget = Budget(trials=24, max_epochs=9, target=0.0)
    run = simulated(tmp_path / "run", space={"lr": uniform(0, 1)}, budget=budget, curve=reaches_the_target)
    assert run.best is not None
    assert run.best.status == "stopped"
    export(run, "optuna", tmp_path / "study.db")
    best = optuna.load_study(study_name="simulated", storage=f"sqlite:///{tmp_path}/study.db").best_trial
    assert (best.user_attrs["trial"], best.user_attrs["status"], best.value) == (run.best.trial, "stopped", 0.0)


def test_tensorboard_reads_every_value(run: Run, tmp_path: Path) -> None:
    folders = export(run, "tensorboard", tmp_path / "board")
    assert [folder.name for folder in folders] == list(run.record.trials)
    for folder, trial in zip(folders, run.record.trials.values(), strict=True):
        found = EventAccumulator(str(folder)).Reload()
        losses = [(e.epoch, e.metrics["loss"]) for e in trial.epochs.values() if e.metrics["loss"] is not None]
        told = found.Scalars("loss") if losses else []
        assert [(one.step, one.value) for one in told] == [(epoch, pytest.approx(loss)) for epoch, loss in losses]
        assert [one.wall_time for one in told] == pytest.approx([e.time for e in trial.epochs.values()][: len(told)])
        assert "_hparams_/session_start_info" in found.summary_metadata


def test_a_trial_that_failed_before_an_epoch_is_in_tensorboard_as_a_failure(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    simulated(folder)
    failed = ended(0, "failed", cause="error", message="KeyError: 'lr'")
    events = [event("study_started", trials=1), started(0, config={"lr": 0.1}), failed]
    (folder / "events/000001.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in events))
    (board,) = export(load_run(folder), "tensorboard", tmp_path / "board")
    found = EventAccumulator(str(board)).Reload()
    assert found.Tags()["scalars"] == []
    (told,) = found.Tensors("outcome/text_summary")
    assert told.tensor_proto.string_val[0].decode() == "failed: error\nKeyError: 'lr'"
    start, end = (
        HParamsPluginData.FromString(found.summary_metadata[f"_hparams_/session_{name}_info"].plugin_data.content)
        for name in ("start", "end")
    )
    assert start.session_start_info.hparams["lr"].number_value == 0.1
    assert end.session_end_info.status == Status.Value("STATUS_FAILURE")


def test_tensorboard_needs_a_new_folder(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="exists"):
        export(run, "tensorboard", tmp_path)
