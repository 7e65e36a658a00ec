"""NVIDIA's MPS for one search. The daemon is a program in its place: a GPU and its driver are needed for the real one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.searches import wait_for
from tuner import ImageClassifier, Resources, Study, uniform
from tuner.driver import mps
from tuner.driver.mps import overlapping
from tuner.machine.hardware import MPS_VARIABLE, mps_runs

DAEMON = """#!/bin/sh
[ "$1" = -f ] || exit 2
sleep 1000 &
echo $! > {told}
touch "$CUDA_MPS_PIPE_DIRECTORY/control"
wait
"""
HOLDING = """
import os, signal
from tests.driver.test_mps import study
from tuner.driver import mps
mps.PROBE = "pass"
with mps.overlapping(study("auto")):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def study(gpus: str | float) -> Study:
    return Study(
        "some",
        trial=ImageClassifier("digits", "resnet18", weights=None),
        space={"lr": uniform(0.1, 0.2)},
        metric="val_accuracy",
        resources=Resources(gpus=gpus),  # type: ignore[arg-type]
    )


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the daemon says the id of the process that it starts."""
    told = tmp_path / "told"
    daemon = tmp_path / "nvidia-cuda-mps-control"
    daemon.write_text(DAEMON.format(told=told))
    daemon.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(MPS_VARIABLE, raising=False)
    return told


def is_over(server: Path) -> bool:
    try:
        os.kill(int(server.read_text()), 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{server.read_text().strip()}/stat").read_text().split()[2] == "Z"


def test_trials_that_share_gpus_are_served_for_the_length_of_the_search(
    server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "PROBE", "pass")
    with overlapping(study("auto")):
        assert mps_runs()
        folder = Path(os.environ[MPS_VARIABLE])
        assert not is_over(server)
    assert MPS_VARIABLE not in os.environ
    assert not folder.exists()
    wait_for(lambda: is_over(server))


@pytest.mark.parametrize("probe", ["raise SystemExit(805)", "import time; time.sleep(60)"])
def test_a_daemon_through_which_no_gpu_can_be_used_is_not_used(
    server: Path, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "PROBE", probe)
    monkeypatch.setattr(mps, "PROBE_SECONDS", 1.0)
    with overlapping(study("auto")):
        assert not mps_runs()
        assert MPS_VARIABLE not in os.environ
    wait_for(lambda: is_over(server))


def test_without_the_driver_the_probe_says_that_nothing_is_served(server: Path) -> None:
    with overlapping(study("auto")):
        assert MPS_VARIABLE not in os.environ


@pytest.mark.parametrize("gpus", [0.5, 1])
def test_trials_that_dont_share_are_left_alone(server: Path, gpus: float) -> None:
    with overlapping(study(gpus)):
        assert not server.exists()


def test_a_daemon_that_runs_already_is_used_and_left_alone(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    (pipes / "control").touch()
    monkeypatch.setenv(MPS_VARIABLE, str(pipes))
    with overlapping(study("auto")):
        assert os.environ[MPS_VARIABLE] == str(pipes)
    assert not server.exists()
    assert (pipes / "control").exists()


def test_a_killed_search_takes_its_daemon_along(server: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HOLDING], check=False)
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: is_over(server))
