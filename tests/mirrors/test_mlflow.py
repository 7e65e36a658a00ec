"""The mirror in MLflow: the real client, against MLflow's own server on loopback."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import start, study_file, tuner
from tests.history.events_of_a_run import ended, event, started
from tests.history.events_of_a_run import reported as epoch_reported
from tests.mirrors.mlflow_server import Server, at, free_port, mlflow_server
from tests.mirrors.test_wandb_steered import FIRST, SECOND, score, write
from tests.mirrors.wandb_files import shown_runs
from tests.results.simulated import of_events, simulated
from tests.searches import RESUMABLE, study, wait_for
from tuner import Budget, NoEarlyStopping, Run, StudyError, load_run
from tuner.html_report import write_report
from tuner.mirrors.process import Mirrors, mirror_command, mlflow_address
from tuner.results.tables import write_tables

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
DEAD = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with mlflow_server(tmp_path_factory.mktemp("a server")) as running:
        yield running


def mirror(run: Run, server: Server, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "MLFLOW_TRACKING_URI": server.url, **more}
    command = mirror_command("mlflow", run.folder)
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def mirrored(run: Run, address: str) -> Mirrors:
    mirrors = Mirrors("off", address)
    mirrors.start(run.folder)
    return mirrors


def told(finished: "subprocess.CompletedProcess[str]") -> None:
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Run:
    """A search that has ended, as MLflow has it."""
    run = simulated(tmp_path_factory.mktemp("a storage") / "study" / "run", budget=Budget(trials=7, max_epochs=9))
    for name in ("config.json", "model.safetensors"):
        run.folder.write(f"best/{name}", b"{}")
    write_report(run)
    write_tables(run.folder, run.record)
    told(mirror(run, server, MLFLOW_EXPERIMENT_NAME="seven"))
    return run


def test_every_trial_is_a_run_with_its_configuration_and_every_value(run: Run, server: Server) -> None:
    shown = server.runs("seven")
    assert set(shown) == {"simulated", *(f"simulated {trial}" for trial in run.record.trials)}
    for trial in run.record.trials.values():
        found = shown[f"simulated {trial.trial}"]
        assert found.data.tags["mlflow.parentRunId"] == shown["simulated"].info.run_id
        assert found.data.params == {name: str(value) for name, value in trial.config.items()}
        values = {e.epoch: e.metrics["loss"] for e in trial.epochs.values() if e.metrics["loss"] is not None}
        assert server.history(found, "loss") == sorted(values.items())


def test_how_a_trial_ended_is_its_status_and_its_tags(run: Run, server: Server) -> None:
    shown, statuses = server.runs("seven"), set()
    for trial in run.record.trials.values():
        found = shown[f"simulated {trial.trial}"]
        statuses.add(trial.status)
        assert found.info.status == ("FAILED" if trial.status == "failed" else "FINISHED")
        assert found.data.tags["status"] == trial.status
        assert found.data.tags.get("cause") == trial.cause
        assert found.data.metrics["best_loss"] == run.record.best_of(trial.trial)[1]  # type: ignore[index]
        assert (found.data.tags.get("best") == "true") is (run.best is not None and trial.trial == run.best.trial)
    assert statuses == {"completed", "stopped", "failed"}


def test_the_parent_has_the_winner_the_report_and_the_tables(run: Run, server: Server) -> None:
    parent = server.runs("seven")["simulated"]
    assert run.best is not None
    assert parent.info.status == "FINISHED"
    assert (parent.data.params["metric"], parent.data.params["mode"]) == ("loss", "min")
    assert (parent.data.tags["status"], parent.data.tags["best"]) == ("finished", run.best.trial)
    assert parent.data.metrics["loss"] == run.best_metrics["loss"]
    assert parent.data.metrics["total"] == 7
    assert server.files(parent) == {"best", "history.csv", "report.html", "run.json", "trials.csv"}
    assert server.files(parent, "best") == {"best/config.json", "best/model.safetensors"}


@pytest.fixture(scope="module")
def sittings(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[tuple[Path, Server]]:
    """A search that was interrupted, and went on; MLflow got the first part twice, as its mirror was killed meanwhile."""
    folder = tmp_path_factory.mktemp("a folder") / "größe" / "run"
    told(mirror(write(folder, FIRST, status="interrupted"), server))
    parent = server.runs("größe")["größe"]
    assert (parent.info.status, parent.data.tags["status"]) == ("KILLED", "interrupted")
    assert server.runs("größe")["größe 00001"].data.tags["cause"] == "error"
    (folder / "mlflow/mirror.json").unlink()
    run = write(folder, FIRST, SECOND, status="finished")
    score(run)
    told(mirror(run, server))
    assert server.runs("größe")["größe"].info.run_id == parent.info.run_id
    return folder, server


def test_a_resumed_search_goes_on_in_the_same_runs_with_each_epoch_once(sittings: tuple[Path, Server]) -> None:
    shown = sittings[1].runs("größe")
    assert set(shown) == {"größe", "größe 00000", "größe 00001", "größe 00002"}
    expected = {"00000": [(1, 0.5), (2, 0.6)], "00001": [(1, 0.7), (2, 0.8), (3, 0.9)], "00002": []}
    for trial, epochs in expected.items():
        assert sittings[1].history(shown[f"größe {trial}"], "accuracy") == epochs
    assert shown["größe"].info.status == "FINISHED"
    address = json.loads((sittings[0] / "mlflow/mirror.json").read_text())["url"]
    its = shown["größe"].info
    assert address == f"{sittings[1].url}/#/experiments/{its.experiment_id}/runs/{its.run_id}"


def test_a_trial_that_is_tried_again_is_no_failure_any_more(sittings: tuple[Path, Server]) -> None:
    shown = sittings[1].runs("größe")
    found = shown["größe 00001"]
    assert (found.info.status, found.data.tags["status"], found.data.tags["best"]) == ("FINISHED", "completed", "true")
    assert not {"cause", "message", "traceback"} & set(found.data.tags)
    assert "study.py" in shown["größe 00002"].data.tags["traceback"]
    assert "best" not in shown["größe 00000"].data.tags  # which was the best before


def test_notes_are_notes_and_their_hashtags_are_tags(sittings: tuple[Path, Server]) -> None:
    shown = sittings[1].runs("größe")
    assert shown["größe 00000"].data.tags["mlflow.note.content"] == "seed 100\nada: noisy #again\nada: overfits"
    assert shown["größe 00000"].data.tags["again"] == "true"
    assert shown["größe"].data.tags["mlflow.note.content"] == "ada: a #sweep of mine"
    assert shown["größe"].data.tags["sweep"] == "true"


def test_names_that_mlflow_refuses_are_changed_and_long_parameters_are_cut(tmp_path: Path, server: Server) -> None:
    config = {"a": {"b": 1}, "text": "x" * 7000, "p@": 2, **{f"more {number}": number for number in range(120)}}
    metrics = {"loss": 0.5, "acc@5": 0.1, "acc#5": 0.2, "../up": 0.3, "größe/x": 0.4}
    events = [started(0, config=config), epoch_reported(0, 1, **metrics), ended(0, "completed")]
    run = of_events(tmp_path / "odd" / "run", [event("study_started", trials=1), *events])
    finished = mirror(run, server)
    told(finished)
    assert "'text' is cut" in finished.stdout
    found = server.runs("told")["told 00000"].data
    assert {name: found.metrics[name] for name in ("loss", "acc_5", "acc_5_2", "up", "größe/x")} == {
        "loss": 0.5,
        "acc_5": 0.1,
        "acc_5_2": 0.2,
        "up": 0.3,
        "größe/x": 0.4,
    }
    assert (found.params["a.b"], found.params["p_"], found.params["more 119"]) == ("1", "2", "119")
    assert found.params["text"] == "x" * 5999 + "…"


def test_what_a_dead_server_lacks_is_sent_later_by_the_printed_command_once(tmp_path: Path, server: Server) -> None:
    run = simulated(tmp_path / "my study" / "run 1", scheduler=NoEarlyStopping(), budget=Budget(trials=2, max_epochs=3))
    password = "http://ada:secret@127.0.0.1:9"
    (problem,) = mirrored(run, password).finish(300)
    assert problem.startswith("MLflow has received only a part of the run; see ")
    assert "secret" not in problem + (Path(run.path) / "mlflow/mirror.log").read_text()
    command = problem.partition("send the rest with: ")[2]
    assert shlex.split(command)[-1] == DEAD
    words = [sys.executable, *shlex.split(command)[1:-1], server.url]
    for _ in range(2):
        around = {**os.environ, "MLFLOW_EXPERIMENT_NAME": "sent later"}
        subprocess.run(words, stdin=subprocess.DEVNULL, env=around, check=True, timeout=300)
    shown = server.runs("sent later")
    for trial in run.record.trials.values():
        values = [(epoch.epoch, epoch.metrics["loss"]) for epoch in trial.epochs.values()]
        assert server.history(shown[f"simulated {trial.trial}"], "loss") == values


@pytest.mark.slow
def test_a_server_that_is_started_again_gets_what_it_missed(tmp_path: Path) -> None:
    port = free_port()
    run = simulated(tmp_path / "study" / "run", budget=Budget(trials=2, max_epochs=3))
    processes = mirrored(run, f"http://127.0.0.1:{port}")
    with mlflow_server(tmp_path, port) as server:
        assert processes.finish(300) == []
        assert set(server.runs("simulated")) == {"simulated", "simulated 00000", "simulated 00001"}


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # in MLflow, with this SQLAlchemy
def test_a_database_needs_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where MLflow puts artifacts
    run = simulated(tmp_path / "study" / "run", budget=Budget(trials=2, max_epochs=3))
    url = f"sqlite:///{tmp_path / 'here.db'}"
    assert mirrored(run, url).finish(300) == []
    assert set(at(url).runs("simulated")) == {"simulated", "simulated 00000", "simulated 00001"}


@pytest.mark.parametrize(
    "address",
    ["", "localhost:5000", "ftp://host", "http://", "http:///x", "mlruns", "file:///tmp/x", "sqlite://", "http://a\0b"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(StudyError, match=r"mlflow needs the address of a tracking server.*use http://HOST:5000"):
        mlflow_address(address)


def test_a_refused_address_is_shown_without_its_password() -> None:
    with pytest.raises(StudyError, match=r"got 'ftp://host'"):
        mlflow_address("ftp://ada:secret@host")


@pytest.mark.parametrize("address", [DEAD, "https://a:b@host/path", "sqlite:///x.db", "postgresql+psycopg2://a:b@h/db"])
def test_an_address_is_taken_as_it_is(address: str) -> None:
    assert mlflow_address(address) == address


def test_mlflow_is_off_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", DEAD)
    assert mlflow_address(None) is None
    assert mlflow_address("off") is None


def test_without_its_client_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(StudyError, match=r"got sqlite, and an installation without alembic; pip install mlflow"):
        mlflow_address("sqlite:///x.db")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(
        StudyError,
        match=r"got http, and an installation without mlflow; pip install 'image-tuner\[mlflow\]'",
    ):
        mlflow_address(DEAD)


def reported(folder: Path) -> int:
    try:
        return load_run(folder / "runs").record.epochs()
    except Exception:  # it has not begun
        return 0


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_and_resumed_search_is_in_both_mirrors_with_each_epoch_once(tmp_path: Path, server: Server) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    study_file(folder, study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping(), warm_start=None", trials=4))
    address = server.url.replace("//", "//ada:secret@")
    driver = start("run", "space.py", "--mlflow", address, "--wandb", "offline", folder=folder)
    wait_for(lambda: driver.poll() is not None or reported(folder) >= 7)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert 7 <= load_run(folder / "runs").record.epochs() < 36
    done = tuner("resume", "runs", folder=folder)
    assert done.code == 0, done.err
    assert "MLflow has" not in done.err
    run, shown = load_run(folder / "runs"), server.runs("simple")
    assert run.status == "finished"
    assert set(shown) == {"simple", *(f"simple {number:05d}" for number in range(4))}
    for name, trial in run.record.trials.items():
        found = shown[f"simple {name}"]
        assert found.info.status == "FINISHED"
        assert server.history(found, "loss") == [
            (epoch, (trial.config["x"] - 0.3) ** 2 + 1 / epoch) for epoch in range(1, 10)
        ]
        assert found.data.tags["mlflow.parentRunId"] == shown["simple"].info.run_id
    assert shown["simple"].info.status == "FINISHED"
    assert {"best", "report.html", "trials.csv"} <= server.files(shown["simple"])
    in_wandb = shown_runs(Path(run.path) / "wandb")
    for name in run.record.trials:
        assert [row["epoch"] for row in in_wandb[f"simple {name}"].history] == [*range(1, 10)]
    assert run.info["mlflow"] == server.url
    texts = [*Path(run.path).glob("*.json"), *Path(run.path).glob("mlflow/*"), *Path(run.path).glob("events/*")]
    assert [path for path in texts if "secret" in path.read_text()] == []


@pytest.mark.ray
def test_a_search_beside_a_dead_server_ends_as_ever_and_says_what_is_missing(tmp_path: Path) -> None:
    study_file(tmp_path, study(RESUMABLE, "warm_start=None", trials=1))
    done = tuner("run", "space.py", "--mlflow", DEAD, "--wandb", "off", folder=tmp_path, EPOCH_SECONDS="0")
    assert done.code == 0, done.err
    assert "best: loss" in done.out
    (line,) = [line for line in done.err.splitlines() if "MLflow has" in line]
    assert "MLflow has received only a part of the run; see " in line
    assert line.endswith(f"{Path(load_run(tmp_path / 'runs').path)} {DEAD}")
    assert "Traceback" not in done.err


def test_an_address_that_is_none_stops_the_command_before_anything_is_written(tmp_path: Path) -> None:
    study_file(tmp_path, study(RESUMABLE))
    done = tuner("run", "space.py", "--mlflow", "localhost:5000", "--wandb", "off", folder=tmp_path)
    assert done.code == 2
    assert "tuner: mlflow needs the address of a tracking server" in done.err
    assert not (tmp_path / "runs").exists()
