"""`show --watch` from another terminal than the search's."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands import start, study_file, tuner
from tests.results.simulated import simulated
from tuner import load_run
from tuner.history.run_info import write_info
from tuner.html_report import write_report

STUDY = """
def train(config):
    for epoch in range(3):
        time.sleep(0.2)
        tuner.report(loss=config["lr"] / (epoch + 1))

study = Study("slow", trial=train, space={"lr": uniform(0, 1)}, metric="loss", mode="min", search=Random(), scheduler=NoEarlyStopping(),
    budget=Budget(trials=5, max_epochs=3), resources=Resources(cpus=1), warm_start=None)
"""


@pytest.fixture
def search(tmp_path: Path) -> "subprocess.Popen[str]":
    """A search whose run folder is there."""
    study_file(tmp_path, STUDY)
    search = start("run", "space.py", "--concurrency", "1", "--quiet", folder=tmp_path)
    while not list(tmp_path.glob("runs/slow/*/run.json")):
        assert search.poll() is None
        time.sleep(0.1)
    return search


@pytest.mark.ray
def test_a_running_search_is_followed_to_its_end(search: "subprocess.Popen[str]", tmp_path: Path) -> None:
    watched = tuner("show", "--watch", "runs", folder=tmp_path)
    assert search.wait(timeout=300) == 0
    search.communicate()
    assert watched.code == 0
    assert watched.err.startswith("slow: followed\n")
    assert "trial 00004 completed after 3 epochs" in watched.err
    assert "5 of 5 trials: 5 done" in watched.err
    assert "best: loss" in watched.out
    assert f"report: {load_run(tmp_path / 'runs').info['report']}" in watched.out.replace("\n", "")


@pytest.mark.ray
@pytest.mark.slow
def test_who_stops_watching_leaves_the_search_alone(search: "subprocess.Popen[str]", tmp_path: Path) -> None:
    watcher = start("show", "--watch", "runs", folder=tmp_path)
    assert watcher.stderr is not None
    assert watcher.stderr.readline() == "slow: followed\n"
    watcher.send_signal(signal.SIGINT)
    out, err = watcher.communicate(timeout=300)
    assert watcher.returncode == 0
    assert "Traceback" not in err
    assert "running" in out
    search.communicate(timeout=300)
    assert search.returncode == 0


def test_a_run_that_is_over_is_shown_at_once(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    watched = tuner("show", "--watch", tmp_path, folder=tmp_path)
    assert watched.code == 0
    assert f"{len(run.record.trials)} trials" in watched.err
    assert "best: loss" in watched.out


def test_the_report_of_a_search_that_failed_is_named_too(tmp_path: Path) -> None:
    run = simulated(tmp_path, curve=lambda config, epoch: float("nan"))
    assert run.best is None
    write_info(run.folder, {**run.info, "status": "failed", "report": write_report(run)})
    watched = tuner("show", "--watch", tmp_path, folder=tmp_path)
    assert watched.out.endswith(f"report: {tmp_path / 'report.html'}\n")


def test_of_a_search_whose_driver_was_killed_no_time_is_left(tmp_path: Path) -> None:
    run = simulated(tmp_path, reports=20)
    limits = {"trials": 24, "max_epochs": 9}
    write_info(run.folder, {**run.info, "status": "running", "budget": limits})
    assert load_run(tmp_path).status == "interrupted"
    watched = tuner("show", "--watch", tmp_path, folder=tmp_path)
    assert watched.code == 0
    assert " left (" not in watched.err
    assert watched.err.splitlines()[-1].endswith(" so far")
