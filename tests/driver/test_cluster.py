"""Ray as a search starts and leaves it, in processes of their own."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, environment, start, study_file, tuner
from tests.nodes import NEEDS_PLAIN_PATH
from tests.searches import CURVE, RESUMABLE, epochs_reported, ray_process, study, wait_for
from tests.test_several_devices import ON_LOOPBACK
from tuner import load_run
from tuner.driver.local_ray import LONGEST_PATH, short_folder
from tuner.driver.patching import changed
from tuner.driver.ray_inside.tune import tune_subdued

pytestmark = pytest.mark.ray

BEFORE_AND_AFTER = """
import logging, os, signal, sys
import ray
from ray import tune
import ray.tune.tune
from ray._private import parameter, services, utils, worker
from ray.air._internal import usage
from ray.air.execution import PlacementGroupResourceManager
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.experimental import internal_kv
import tuner

def state():
    logger = lambda name: (logging.getLogger(name).level, logging.getLogger(name).propagate, logging.getLogger(name).handlers[:])
    return {
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "loggers": {name: logger(name) for name in ("", "ray", "ray.tune", "ray.train", "ray.data", "ray._private")},
        "patched": [
            services.get_node_ip_address, services.ConsolePopen, parameter.RayParams.__init__, utils.set_sigterm_handler,
            worker.print_to_stdstream, usage.tag_callbacks, ray.tune.tune._setup_signal_catching,
            RayActorManager._actor_task_failed, PlacementGroupResourceManager.__del__,
        ],
        "client": internal_kv.global_gcs_client,
        "folder": os.getcwd(),
        "streams": (sys.stdout, sys.stderr),
        "ray": ray.is_initialized(),
        "temporary": sorted(name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("tuner-")),
    }

def train(config):
    tuner.report(loss=config["x"])

study = tuner.Study("cheap", trial=train, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min",
    search=tuner.Random(), budget=tuner.Budget(trials=2, max_epochs=1), warm_start=None)
before = state()
for _ in range(2):
    assert tuner.run(study, storage="out").status == "finished"
    after = state()
    for name in before:
        assert before[name] == after[name], (name, before[name], after[name])
ray.init("local", num_cpus=1, include_dashboard=False)  # the user's own, with a token of its own
assert ray.get(ray.remote(lambda: 3).remote(), timeout=60) == 3
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.slow
def test_a_search_leaves_the_process_as_it_found_it_twice_in_a_row(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "program.py").write_text(BEFORE_AND_AFTER)
    variables = {
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(ROOT),
        "HOME": str(temporary),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, "program.py"]
    finished = subprocess.run(
        command, cwd=tmp_path, env=environment(**variables), capture_output=True, text=True, timeout=500, check=False
    )
    assert finished.returncode == 0, finished.stderr


def kill_gcs_servers(driver: "subprocess.Popen[str]", count: int) -> None:
    """Kill so many of the GCS servers that a driver starts, each as soon as it is there."""
    killed: set[int] = set()
    while len(killed) < count and driver.poll() is None:
        try:
            process = ray_process(driver.pid, "gcs_server")
        except StopIteration:
            time.sleep(0.01)
            continue
        if process not in killed:
            os.kill(process, signal.SIGKILL)
            killed.add(process)


def test_ray_tune_keeps_to_itself_that_trials_lost_their_workers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    logger = logging.getLogger("ray.tune.tune")
    with tune_subdued():
        logger.error("Trials did not complete: %s", ["run_trial_00002"])
    assert caplog.messages == []
    logger.error("Trials did not complete: %s", ["run_trial_00003"])
    assert caplog.messages == ["Trials did not complete: ['run_trial_00003']"]


@pytest.mark.parametrize(("failures", "code"), [pytest.param(1, 0, marks=pytest.mark.slow), (2, 2)])
def test_ray_that_fails_to_start_is_started_once_more(
    tmp_path: Path, temporary: Path, failures: int, code: int
) -> None:
    space = study_file(tmp_path, study(CURVE, "search=Random()", trials=2))
    waiting = {"RAY_gcs_server_port_wait_time_s": "2", "TMPDIR": str(temporary)}
    process = start("run", space, "--storage", "out", "--wandb", "off", folder=tmp_path, **waiting)
    killer = threading.Thread(target=kill_gcs_servers, args=(process, failures))
    killer.start()
    _, err = process.communicate(timeout=300)
    killer.join()
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert list(temporary.glob("tuner-*")) == []
    if code == 2:
        assert err.splitlines()[-1].startswith("tuner: a search needs Ray to start on this machine, got no answer")
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_workers_are_as_nice_as_tuner_itself(tmp_path: Path) -> None:
    body = "import os\n\ndef train(config):\n    tuner.report(loss=config['x'], niceness=os.nice(0))\n"
    space = study_file(tmp_path, study(body, "search=Random()", trials=1))
    finished = tuner("run", space, "--storage", "out", folder=tmp_path)
    assert finished.code == 0, finished.err
    told = next(iter(load_run(tmp_path / "out").record.trials.values())).epochs[1].metrics
    assert told["niceness"] == os.nice(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nice", "20"], "tuner: nice needs a whole number from 0 to 19, got 20"),
        (
            ["--nice", "5", "--address", "127.0.0.1:1"],
            "tuner: nice is for workers that tuner starts, got nice=5 together with address='127.0.0.1:1'; "
            "leave it out, and set RAY_worker_niceness=5 where `ray start` runs",
        ),
    ],
)
def test_a_niceness_that_cannot_be_had_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    finished = tuner("run", study_file(tmp_path, study(CURVE)), *options, folder=tmp_path)
    assert (finished.code, finished.err.splitlines()[-1]) == (2, message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_search_told_to_end_while_ray_starts_leaves_nothing(
    tmp_path: Path, temporary: Path, number: signal.Signals
) -> None:
    space = study_file(tmp_path, study(CURVE))
    process = start("run", space, "--wandb", "off", folder=tmp_path, TMPDIR=str(temporary))
    wait_for(lambda: list(temporary.glob("tuner-ray-*/r/s/logs/raylet.out")) != [])
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    reason = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == f"tuner: interrupted ({reason}) before the search started; nothing was written"
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()
    assert list(temporary.glob("tuner-*")) == []


@pytest.mark.slow
@NEEDS_PLAIN_PATH
def test_a_joined_cluster_that_dies_ends_the_search_with_its_state_saved(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.two_nodes"]
    settings = environment(**ON_LOOPBACK)
    nodes = subprocess.Popen(command, cwd=ROOT, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert nodes.stdout is not None
    address = nodes.stdout.readline().strip()
    space = study_file(tmp_path, study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping()", trials=4))
    process = start("run", space, "--storage", "out", "--address", address, folder=tmp_path, **ON_LOOPBACK)
    try:
        wait_for(lambda: epochs_reported(tmp_path / "out") >= 4)
        os.kill(ray_process(nodes.pid, "gcs_server"), signal.SIGKILL)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
        nodes.kill()
        nodes.communicate()
    run = load_run(tmp_path / "out")
    assert process.returncode == 130, err
    assert (run.info["status"], run.info["end_reason"]) == ("interrupted", "Ray is gone")
    assert err.splitlines()[-1] == f"python -m tuner resume {run.path}"


def test_a_temporary_directory_too_deep_for_sockets_gives_way_to_another(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * LONGEST_PATH)
    deep.mkdir()
    with changed(tempfile, "tempdir", str(deep)):
        assert short_folder() == Path("/tmp")
    with changed(tempfile, "tempdir", "/var/tmp"):
        assert short_folder() == Path("/var/tmp")


def test_a_ray_that_the_user_has_started_is_left_alone(tmp_path: Path) -> None:
    program = """
import ray, tuner
ray.init("local", num_cpus=1, include_dashboard=False)
study = tuner.Study("cheap", trial=print, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min")
try:
    tuner.run(study, storage="out")
except tuner.StudyError as error:
    print(error)
assert ray.is_initialized()
"""
    variables = {"PYTHONPATH": str(ROOT), "RAY_gcs_server_port_wait_time_s": "120"}
    command = [sys.executable, "-c", program]
    finished = subprocess.run(
        command, cwd=tmp_path, env=environment(**variables), capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "got a process that is connected to it already; call ray.shutdown() first" in finished.stdout
    assert not (tmp_path / "out").exists()
