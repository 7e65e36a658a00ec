import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment, study_file, tuner
from tests.mirrors.wandb_files import shown_runs
from tests.mirrors.wandb_server import wandb_server
from tests.results.simulated import simulated
from tests.searches import wait_for
from tuner import Budget, StudyError, load_run
from tuner.mirrors.process import Mirrors, sync_command, wandb_mode
from tuner.storage.folder import Folder, LocalFolder

STUDY = """
def train(config):
    for epoch in range(3):
        tuner.report(loss=config["lr"] / (epoch + 1))

study = Study("cheap", trial=train, space={"lr": uniform(0, 1)}, metric="loss", mode="min", search=Random(),
    budget=Budget(trials=4, max_epochs=3), resources=Resources(cpus=1), warm_start=None)
"""


def shown_in_wandb(folder: Folder, mode: str) -> Mirrors:
    mirrors = Mirrors(mode, None)
    mirrors.start(folder)
    return mirrors


def test_the_mode_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert wandb_mode("offline") == "offline"
    with pytest.raises(StudyError, match=r"needs one of online, offline, off, got 'yes'"):
        wandb_mode("yes")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert wandb_mode(None) == "off"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert wandb_mode(None) == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert wandb_mode(None) == "off"


def test_a_server_that_stalls_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = simulated(tmp_path / "study" / "run")
    with wandb_server("stalls") as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        mirror = shown_in_wandb(run.folder, "online")
        (problem,) = mirror.finish(1.0)
    assert "had not received everything after 1 s" in problem
    assert "wandb sync" in problem
    wait_for(lambda: not group_lives(mirror.started["W&B"][0].pid))  # killed: gone as soon as the kernel comes to it


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_mirror_that_fails_says_where_to_look(tmp_path: Path) -> None:
    mirror = shown_in_wandb(LocalFolder(tmp_path), "offline")  # which is no run
    (problem,) = mirror.finish(60)
    assert "received only a part of the run" in problem
    assert "a run is a folder with run.json" in (tmp_path / "wandb/mirror.log").read_text()


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_is_shown_and_goes_on_there_when_it_is_extended(tmp_path: Path) -> None:
    study_file(tmp_path, STUDY)
    assert tuner("run", "space.py", "--wandb", "offline", folder=tmp_path).code == 0
    assert tuner("resume", "runs", "--trials", "6", folder=tmp_path).code == 0
    run = load_run(tmp_path / "runs")
    shown = shown_runs(Path(run.path) / "wandb")
    assert sorted(shown) == [*(f"cheap {number:05d}" for number in range(6)), "cheap summary"]
    for trial in run.record.trials.values():
        losses = [epoch.metrics["loss"] for epoch in trial.epochs.values()]
        assert [row["loss"] for row in shown[f"cheap {trial.trial}"].history] == losses
    assert "report.size" in shown["cheap summary"].summary


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_ends_as_ever_beside_a_server_that_stalls(tmp_path: Path) -> None:
    study_file(tmp_path, STUDY)
    with wandb_server("stalls") as server:
        reach = {
            "WANDB_BASE_URL": server.url,
            "WANDB_API_KEY": "0" * 40,
            "WANDB_INIT_TIMEOUT": "2",
        }
        finished = tuner("run", "space.py", folder=tmp_path, **reach)
        assert server.requests > 0
    assert finished.code == 0, finished.err
    assert "best: loss" in finished.out
    assert "wandb sync" in finished.err
    assert "Traceback" not in finished.err


def test_the_printed_command_sends_what_was_kept_from_a_folder_with_a_space(tmp_path: Path) -> None:
    run = simulated(tmp_path / "my study" / "run 1", budget=Budget(trials=2, max_epochs=3))
    assert shown_in_wandb(run.folder, "offline").finish(300) == []
    with wandb_server("answers") as server:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        reach = {"PATH": path, "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40, "HOME": str(tmp_path)}
        command = ["sh", "-c", sync_command(Path(run.path))]
        sent = subprocess.run(
            command, env=environment(**reach), capture_output=True, text=True, check=False, timeout=300
        )
        assert sent.returncode == 0, sent.stdout + sent.stderr
        names = {told["displayName"] for told in server.runs.values()}
        assert names == {"simulated 00000", "simulated 00001", "simulated summary"}
        sent_epochs = {
            told["displayName"]: [row["epoch"] for row in server.history[key]]
            for key, told in server.runs.items()
            if told["jobType"] == "trial"
        }
        assert sent_epochs == {f"simulated {name}": list(trial.epochs) for name, trial in run.record.trials.items()}


def test_what_could_not_be_sent_is_said_with_that_command(tmp_path: Path) -> None:
    mirror = shown_in_wandb(LocalFolder(tmp_path), "offline")  # which is no run
    (problem,) = mirror.finish(60)
    assert sync_command(tmp_path) in problem
