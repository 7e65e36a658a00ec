"""A search is told to end, by whatever tells it, or loses Ray under its feet: it saves, says how to go on, and goes on.

With the search algorithm and the early stopping that a study has which names none.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import Finished, start, study_file, tuner
from tests.searches import RESUMABLE, epochs_reported, processes_of, ray_process, sessions_of, study, wait_for
from tuner import load_run

pytestmark = pytest.mark.ray

SECONDS_TO_END = 30  # also where Ray is gone
TRIALS = 8
SMALL = study(RESUMABLE, "resources=Resources(cpus=1)", trials=TRIALS)


def started(folder: Path, reports: int = 6, **environment: str) -> "subprocess.Popen[str]":
    space = study_file(folder, SMALL)
    process = start("run", space, "--storage", "out", folder=folder, **environment)
    wait_for(lambda: epochs_reported(folder / "out") >= reports or process.poll() is not None)
    return process


def ended(process: "subprocess.Popen[str]", seconds: float = 300) -> Finished:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Finished(process.returncode, out, err)


def assert_saved(finished: Finished, folder: Path, reason: str) -> None:
    run = load_run(folder / "out")
    assert finished.code == 130, finished.err
    assert run.info["status"] == "interrupted"
    assert run.info["end_reason"] == reason
    assert finished.err.splitlines()[-1] == f"python -m tuner resume {run.path}"
    assert "Traceback" not in finished.err
    assert (Path(run.path) / "trials.csv").is_file()


def reported(folder: Path) -> set[tuple[str, int]]:
    trials = load_run(folder / "out").record.trials.values()
    return {(trial.trial, epoch) for trial in trials for epoch in trial.epochs}


def assert_whole(folder: Path, before: set[tuple[str, int]]) -> None:
    """Every trial has ended, each of its epochs is there, those reported before among them, and some trial was whole."""
    trials = list(load_run(folder / "out").record.trials.values())
    assert [trial.trial for trial in trials] == [f"{number:05d}" for number in range(TRIALS)]
    assert not [trial.trial for trial in trials if trial.live]
    assert all(sorted(trial.epochs) == list(range(1, trial.epoch + 1)) for trial in trials)
    assert any(trial.status == "completed" and trial.epoch == 9 for trial in trials)
    assert before <= reported(folder)


def assert_resumed(folder: Path) -> None:
    before = reported(folder)
    finished = tuner("resume", "out", "--json", folder=folder, EPOCH_SECONDS="0")
    assert finished.code == 0, finished.err
    assert_whole(folder, before)


def assert_resumed_by_one_of_two(folder: Path) -> None:
    """Two drivers at once: one goes on with the run, the other is refused by its name."""
    before = reported(folder)
    both = [start("resume", "out", folder=folder, EPOCH_SECONDS="0.05") for _ in range(2)]
    errors = {process.returncode: err for process, (_, err) in [(each, each.communicate(timeout=300)) for each in both]}
    assert sorted(errors) == [0, 2]
    assert f"process {next(each.pid for each in both if each.returncode == 0)}" in errors[2]
    assert all("Traceback" not in err for err in errors.values())
    assert_whole(folder, before)


def assert_confirmed(folder: Path) -> None:
    """The best configuration is trained again under another seed, as a trial of the run."""
    best = load_run(folder / "out").record.best_trial()
    confirmed = tuner("confirm", "out", "--top", "1", "--seeds", "1", folder=folder, EPOCH_SECONDS="0")
    assert confirmed.code == 0, confirmed.err
    assert " over 2 seeds " in confirmed.out
    *_, again = load_run(folder / "out").record.trials.values()
    assert best is not None
    assert (again.repeats, again.status, again.epoch) == (best.trial, "completed", 9)


def assert_ended_in_order(process: "subprocess.Popen[str]", folder: Path, end: Callable[[int], None], why: str) -> None:
    """Whatever `end` does to a driver: the search's state is saved, it says how to go on, and no process is left."""
    sessions = sessions_of(process.pid)
    end(process.pid)
    assert_saved(ended(process, SECONDS_TO_END), folder, why)
    wait_for(lambda: processes_of(sessions) == [])


def kill_raylet(driver: int) -> None:
    os.kill(ray_process(driver, "raylet"), signal.SIGKILL)


def kill_gcs_server(driver: int) -> None:
    os.kill(ray_process(driver, "gcs_server"), signal.SIGKILL)


def kill_raylet_and_workers(driver: int) -> None:
    os.killpg(ray_process(driver, "raylet"), signal.SIGKILL)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary directory with a path as short as Ray's sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_killed_driver_leaves_nothing_a_signalled_one_and_one_without_ray_save_and_one_of_two_at_once_goes_on(
    tmp_path: Path, temporary: Path
) -> None:
    process = started(tmp_path, TMPDIR=str(temporary))
    sessions = sessions_of(process.pid)
    folders = list(temporary.glob("tuner-ray-*"))
    assert [path.stat().st_mode & 0o777 for path in folders] == [0o700]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: processes_of(sessions) == [])
    assert [path.name for path in temporary.iterdir() if path.name.startswith("tuner-ray")] == []
    process = resumed(tmp_path, until=14)
    assert_ended_in_order(process, tmp_path, lambda driver: os.killpg(driver, signal.SIGTERM), "SIGTERM")
    assert_ended_in_order(resumed(tmp_path, until=22), tmp_path, kill_raylet, "Ray is gone")
    assert_resumed_by_one_of_two(tmp_path)
    assert_confirmed(tmp_path)


def resumed(folder: Path, until: int) -> "subprocess.Popen[str]":
    """A search that goes on and has come to so many epochs."""
    process = start("resume", "out", folder=folder)
    wait_for(lambda: epochs_reported(folder / "out") >= until or process.poll() is not None)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGHUP, "SIGHUP")])
def test_a_signal_to_the_whole_group_ends_the_search_in_order(
    tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    assert_ended_in_order(started(tmp_path), tmp_path, lambda driver: os.killpg(driver, number), reason)
    assert_resumed(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [kill_gcs_server, kill_raylet_and_workers])
def test_a_search_that_loses_ray_ends_with_its_state_saved(tmp_path: Path, kill: Callable[[int], None]) -> None:
    assert_ended_in_order(started(tmp_path), tmp_path, kill, "Ray is gone")
    assert_resumed(tmp_path)
