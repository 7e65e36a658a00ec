"""Searches on a cluster whose nodes Ray's own autoscaler starts and ends, on this machine."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo

from tests.commands import ROOT, environment, start, study_file, tuner
from tests.nodes import NEEDS_PLAIN_PATH
from tests.searches import CURVE, study
from tests.test_several_devices import ON_LOOPBACK
from tuner import Resources, load_run
from tuner.driver.ray_inside import autoscaling

WAITING = """
from pathlib import Path

def train(config):
    while not Path(__file__).with_name(f"go{config['n']}").exists():
        time.sleep(0.05)
    tuner.report(loss=config["n"])

study = Study(
    "scaled", trial=train, space={"n": grid_search([0, 1, 2, 3])}, metric="loss", mode="min", search=Grid(),
    budget=Budget(max_epochs=1), resources=Resources(cpus=1),
)
"""
MANY_SECONDS = 120.0


def test_only_an_autoscaler_with_types_of_nodes_adds_some() -> None:
    def has_types(types: dict[str, str] | None) -> bool:
        return autoscaling._has_types({"autoscaler_report": {"node_type_mapping": types}})

    assert has_types({"a1": "head", "b2": "gpu-group"})
    assert has_types({"a1": "headgroup"})  # it has no other node yet
    assert not has_types({"a1": "node_a1", "b2": "node_b2"})  # a monitor that only looks
    assert not has_types(None)
    assert not autoscaling._has_types({"autoscaler_report": None})


def test_what_the_autoscaler_is_asked_for_is_told() -> None:
    assert autoscaling.waiting_notice(Resources(cpus=4, gpus=1), 8, 2) == (
        "the nodes have room for 2 of the 8 trials at once, so Ray's autoscaler is asked for more nodes, with 4 CPUs and "
        "1 GPU for each trial; `ray status` shows what it does"
    )
    assert "more nodes, with 1 CPU for each trial" in autoscaling.waiting_notice(Resources(cpus=1, gpus=0), 2, 0)


@pytest.fixture(scope="module", params=["v1", "v2"])
def autoscaled(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a cluster of up to three nodes with a CPU each, none at first, with both of Ray's autoscalers."""
    command = [sys.executable, "-m", "tests.autoscaled", "3", request.param]
    cluster = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(**ON_LOOPBACK),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    yield cluster.stdout.readline().strip()
    cluster.stdin.close()
    cluster.wait(60)


def workers(address: str) -> int:
    """How many nodes are there beside the head."""
    nodes = GcsClient(address=address).get_all_node_info(timeout=10).values()
    return sum(node.state == GcsNodeInfo.ALIVE and node.resources_total.get("CPU", 0) > 0 for node in nodes)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MANY_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.ray
@NEEDS_PLAIN_PATH
def test_a_search_has_to_say_for_how_many_trials_nodes_are_started(autoscaled: str, tmp_path: Path) -> None:
    space = study_file(tmp_path, study(CURVE))
    refused = tuner("run", space, "--address", autoscaled, folder=tmp_path, **ON_LOOPBACK)
    assert refused.code == 2
    assert "a search needs to say for how many trials at once, got no --concurrency and no node" in refused.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.ray
@NEEDS_PLAIN_PATH
def test_nodes_come_for_the_trials_that_wait_and_go_when_none_does(autoscaled: str, tmp_path: Path) -> None:
    space = study_file(tmp_path, WAITING)
    options = ("--address", autoscaled, "--concurrency", "2", "--storage", tmp_path / "out")
    driver = start("run", space, *options, folder=tmp_path, **ON_LOOPBACK)
    try:
        until(lambda: any((tmp_path / "out").glob("scaled/*/events")))
        run = load_run(tmp_path / "out")
        until(lambda: len([e for e in load_run(run.path).events if e["event"] == "trial_placed"]) == 2)
        until(lambda: workers(autoscaled) == 2)  # it may have started one too many, as it sees demands a second late
        assert tuner("set", run.path, "--concurrency", "3", folder=tmp_path).code == 0
        until(lambda: workers(autoscaled) == 3)
        for n in range(3):
            (tmp_path / f"go{n}").touch()
        until(lambda: workers(autoscaled) == 1)  # the last trial needs no more
        (tmp_path / "go3").touch()
        _, err = driver.communicate(timeout=MANY_SECONDS)
    finally:
        driver.kill()
    assert driver.returncode == 0, err
    assert re.search("the nodes have room for [01] of the 2 trials at once, so Ray's autoscaler is asked for more", err)
    assert load_run(run.path).record.counts()["completed"] == 4
    until(lambda: workers(autoscaled) == 0)
    resumed = tuner("resume", run.path, "--address", autoscaled, "--max-epochs", "2", folder=tmp_path, **ON_LOOPBACK)
    assert "a search needs to say" not in resumed.err  # for how many trials at once is known from before


@pytest.mark.slow
@pytest.mark.ray
@NEEDS_PLAIN_PATH
def test_whether_trials_get_gpus_that_no_node_has_yet_is_asked(autoscaled: str, tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(
        "from tuner import Budget, ImageClassifier, Study, loguniform\n"
        'study = Study("net", trial=ImageClassifier("digits", weights=None), space={"lr": loguniform(1e-4, 1e-1)},\n'
        "              budget=Budget(trials=1, max_epochs=1))\n"
    )
    options = ("--address", autoscaled, "--concurrency", "1", "--storage", tmp_path / "out")
    refused = tuner("run", "space.py", *options, folder=tmp_path, **ON_LOOPBACK)
    assert refused.code == 2
    assert (
        "whether a trial gets a GPU, got no Resources(gpus=...) and no node that has one; write gpus=1" in refused.err
    )


@pytest.mark.slow
@pytest.mark.ray
@NEEDS_PLAIN_PATH
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_on_fixed_nodes_as_many_trials_run_as_fit(version: str, tmp_path: Path) -> None:
    """Also where a monitor of version 2 looks on, as on KubeRay's clusters without an autoscaler."""
    looks = {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": "head", "RAY_NODE_TYPE_NAME": "headgroup"}
    nodes = subprocess.Popen(
        [sys.executable, "-m", "tests.two_nodes"],
        cwd=ROOT,
        env=environment(**ON_LOOPBACK, **(looks if version == "v2" else {})),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert nodes.stdin is not None
    assert nodes.stdout is not None
    address = nodes.stdout.readline().strip()
    space = study_file(tmp_path, study(CURVE, "search=Random(), resources=Resources(cpus=1)", trials=3))
    options = ("--address", address, "--concurrency", "5", "--storage", "out")
    finished = tuner("run", space, *options, folder=tmp_path, **ON_LOOPBACK)
    nodes.stdin.close()
    nodes.wait(60)
    assert finished.code == 0, finished.err
    assert load_run(tmp_path / "out").info["concurrency"] == 2
    assert "autoscaler" not in finished.err
