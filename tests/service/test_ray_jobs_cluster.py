"""Drivers as jobs of a real Ray head with its dashboard on loopback and a token; needs `pip install 'image-tuner[cluster]'`."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.running import wait_for, wait_until
from tests.service.submissions import ANNE, STUDY, submission
from tuner.service import outcomes
from tuner.service.devices import devices_of_cluster
from tuner.service.executors import RayJobs
from tuner.service.executors.jobs_api import JobsApi
from tuner.service.model import State
from tuner.service.service import Service

TOKEN = "a-token-of-the-tests-own-cluster"
LONG = STUDY.replace("trials=4", "trials=4000").replace(
    "        tuner.report", "        time.sleep(0.3)\n        tuner.report"
)
LONG = LONG.replace("import tuner", "import time\nimport tuner", 1)
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("aiohttp_cors") is None, reason="needs Ray's dashboard: ray[default]"),
]


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard of a head that asks for a token."""
    port, dashboard, agent, client = free_ports(4)
    folder = tmp_path_factory.mktemp("head")
    env = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--num-cpus=2",
        "--num-gpus=0",
    ]
    command += [
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        "--dashboard-host=127.0.0.1",
        "--include-dashboard=true",
    ]
    command += [
        f"--dashboard-port={dashboard}",
        f"--dashboard-agent-listen-port={agent}",
        f"--ray-client-server-port={client}",
    ]
    command += ["--object-store-memory=100000000", "--temp-dir=/tmp/tuner-test-head"]
    log = (folder / "log").open("wb")
    head = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    found = f"http://127.0.0.1:{dashboard}"

    def answers() -> bool:
        assert head.poll() is None, (folder / "log").read_text()
        try:
            return JobsApi(found, env["RAY_AUTH_TOKEN"]).status("nothing") is None
        except OSError:
            return False

    wait_for(answers)
    yield found
    head.send_signal(signal.SIGTERM)
    head.wait(120)
    log.close()


def statuses(url: str) -> list[str]:
    """Of all jobs, the oldest first."""
    request = urllib.request.Request(f"{url}/api/jobs/", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        jobs = json.load(answer)
    return [job["status"] for job in sorted(jobs, key=lambda job: job["start_time"])]


def test_a_study_is_run_adopted_paused_killed_and_cancelled(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "WAITS", (0.1, 0.1, 0.1))
    storage, token = tmp_path / "a folder's name", TOKEN

    def serving() -> Service:
        executor = RayJobs(JobsApi(url, token))
        return Service(storage, devices=devices_of_cluster(2, 0), executor=executor)

    def epochs(service: Service) -> int:
        found = service.progress(study)
        return 0 if found is None else found.epochs

    with serving() as service:
        short = service.submit(submission(options={"wandb": "off"}), ANNE).id
        assert wait_until(service, short, State.FINISHED).attempt == 1
        run = service.run(short)
        assert run is not None
        assert (run.status, len(run.record.trials), statuses(url)) == ("finished", 4, ["SUCCEEDED"])
        study = service.submit(submission(LONG, options={"wandb": "off"}), ANNE).id
        wait_for(lambda: epochs(service) > 2)
    with serving() as service:  # which adopts it
        before = service.study(study).attempt
        wait_for(lambda: epochs(service) > 5)
        assert (service.study(study).attempt, before) == (1, 1)
        service.pause(study, ANNE)
        assert wait_until(service, study, State.PAUSED).devices == ()
        assert statuses(url) == ["SUCCEEDED", "SUCCEEDED"]  # it ended by itself
        service.resume(study, ANNE)
        wait_until(service, study, State.RUNNING)
        driver = json.loads((service.folder.attempt(study, 2) / "process.json").read_text())["pid"]
        os.kill(driver, signal.SIGKILL)
        wait_for(lambda: service.study(study).attempt == 3)
        wait_until(service, study, State.RUNNING)
        service.cancel(study, ANNE)
        wait_for(lambda: not service.study(study).devices)
        found = service.run(study)
    assert statuses(url) == ["SUCCEEDED", "SUCCEEDED", "FAILED", "STOPPED"]
    assert found is not None
    reports = [(e["trial"], e["epoch"]) for e in found.events if e["event"] == "epoch_reported"]
    assert [event["event"] for event in found.events].count("study_resumed") == 2
    assert len(found.record.trials) > 1
    assert reports
