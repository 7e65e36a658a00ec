"""Drivers as jobs of a real Ray head with its dashboard on loopback and a token; needs `pip install 'image-tuner[cluster]'`."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.service.running import wait_for, wait_until
from tests.service.submissions import ANNE, BERT, STUDY, submission
from tests.service.test_killed_server import serving
from tuner.machine.processes import belonging, processes
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
SAVING = """\
import tempfile
import time
from pathlib import Path

import tuner


def train(config):
    begun = tuner.checkpoint()
    for epoch in range(int((begun / "epoch").read_text()) if begun else 0, 20):
        time.sleep(0.4)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch + 1))
            tuner.report(loss=config["x"] + 1 / (epoch + 1), checkpoint=folder)


study = tuner.Study(
    "saving",
    trial=train,
    space={"x": tuner.uniform(0, 1)},
    metric="loss",
    mode="min",
    search=tuner.Random(),
    scheduler=tuner.NoEarlyStopping(),
    warm_start=None,
    budget=tuner.Budget(trials=6, max_epochs=20),
)
"""
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


class Head:
    """A head that asks for a token; it can be killed, and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self._log, self._ports = folder / "log", free_ports(4)
        self.url = f"http://127.0.0.1:{self._ports[1]}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        port, dashboard, agent, client = self._ports
        self._process = self._started(
            *("--head", "--num-cpus=2", f"--port={port}", f"--ray-client-server-port={client}"),
            *("--dashboard-host=127.0.0.1", "--include-dashboard=true", f"--dashboard-port={dashboard}"),
            *(f"--dashboard-agent-listen-port={agent}", "--temp-dir=/tmp/tuner-test-head"),
        )
        wait_for(self._answers)

    def _started(self, *settings: str) -> subprocess.Popen[bytes]:
        env = {**_environment(), "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        everywhere = ("--block", "--num-gpus=0", "--node-ip-address=127.0.0.1", "--object-store-memory=100000000")
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *everywhere, *settings]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    @contextmanager
    def further_node(self) -> Iterator[Callable[[], None]]:
        """One more node, with a CPU; what is given drains it."""
        agent = free_ports(1)[0]
        address = f"127.0.0.1:{self._ports[0]}"
        node = self._started(f"--address={address}", "--num-cpus=1", f"--dashboard-agent-listen-port={agent}")
        try:
            wait_for(lambda: _names(node))
            drain = [sys.executable, "-m", "tests.drain", address, *_names(node)]
            yield lambda: subprocess.run(drain, env=_environment(), check=True)
        finally:
            _kill(node)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            return JobsApi(self.url, TOKEN).status("nothing") is None
        except OSError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        _kill(self._process)

    def end(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(120)


def _environment() -> dict[str, str]:
    return {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}


def _names(node: subprocess.Popen[bytes]) -> list[str]:
    """The name by which Ray knows the node of this process; none until it has one."""
    texts = [Path(f"/proc/{one.pid}/cmdline").read_text() for one in belonging(node.pid, processes())]
    return [text.split("--node_id=")[1].split("\0")[0] for text in texts if "--node_id=" in text][:1]


def _kill(node: subprocess.Popen[bytes]) -> None:
    """As a power cut does: with all that it has started."""
    for one in belonging(node.pid, processes()):
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    node.wait(120)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    head = Head(tmp_path_factory.mktemp("head"))
    head.start()
    yield head
    head.end()


def statuses(url: str) -> list[str]:
    """Of all jobs, the oldest first."""
    request = urllib.request.Request(f"{url}/api/jobs/", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        jobs = json.load(answer)
    return [job["status"] for job in sorted(jobs, key=lambda job: job["start_time"])]


def test_a_study_is_run_adopted_paused_killed_and_cancelled(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "WAITS", (0.1, 0.1, 0.1))
    storage, token, url = tmp_path / "a folder's name", TOKEN, head.url

    def in_this_process() -> Service:
        executor = RayJobs(JobsApi(url, token))
        return Service(storage, devices=devices_of_cluster(2, 0), executor=executor)

    def epochs(service: Service) -> int:
        found = service.progress(study)
        return 0 if found is None else found.epochs

    with in_this_process() as service:
        short = service.submit(submission(options={"wandb": "off"}), ANNE).id
        assert wait_until(service, short, State.FINISHED).attempt == 1
        run = service.run(short)
        assert run is not None
        assert (run.status, len(run.record.trials), statuses(url)) == ("finished", 4, ["SUCCEEDED"])
        study = service.submit(submission(LONG, options={"wandb": "off"}), ANNE).id
        wait_for(lambda: epochs(service) > 2)
    with in_this_process() as service:  # which adopts it
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


def test_studies_of_two_users_outlive_a_killed_server_and_a_killed_head(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    text = LONG.replace("trials=4000", "trials=12")
    looking = Service(tmp_path)  # which is never started: it reads and submits
    ids = [looking.submit(submission(text, options={"wandb": "off"}), user).id for user in (ANNE, BERT, ANNE)]

    def epochs() -> int:
        runs = [looking.run(study) for study in ids]
        return sum(run.record.epochs() for run in runs if run is not None)

    with serving(tmp_path, head.url, cpus=2) as server:
        wait_for(lambda: epochs() > 3)
        server.kill()
        server.wait()
    with serving(tmp_path, head.url, cpus=2):
        before = epochs()
        wait_for(lambda: epochs() > before + 3)
        assert [looking.study(study).deaths for study in ids] == [0, 0, 0]
        head.kill()
        head.start()
        for study in ids:
            wait_until(looking, study, State.FINISHED)
        runs = [looking.run(study) for study in ids]
        assert [looking.study(study).deaths for study in ids] == [0, 0, 0]
    for run in runs:
        assert run is not None
        reports = [(event["trial"], event["epoch"]) for event in run.events if event["event"] == "epoch_reported"]
        assert run.record.counts()["completed"] == 12
        assert set(reports) == {(trial, epoch) for trial in run.record.trials for epoch in (1, 2, 3)}
    looking.close()


def test_a_study_leaves_a_drained_node_and_repeats_no_epoch(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial on it is saved, the node dies, and the study ends on what is left, at its first attempt."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    looking = Service(tmp_path)
    study = looking.submit(submission(SAVING, options={"wandb": "off"}), ANNE).id

    def events(*kinds: str) -> list[dict[str, Any]]:
        run = looking.run(study)
        return [event for event in run.events if event["event"] in kinds] if run is not None else []

    def trials(kind: str) -> set[str]:
        return {event["trial"] for event in events(kind)}

    with serving(tmp_path, head.url, cpus=3):
        with head.further_node() as drain:
            wait_for(lambda: len(trials("trial_placed") - trials("trial_ended")) == 3)  # one of them on that node
            drain()
            wait_for(lambda: events("trial_lost"))
        wait_until(looking, study, State.FINISHED)
    (lost,) = events("trial_lost")
    reports = [(event["trial"], event["epoch"]) for event in events("epoch_reported")]
    assert lost["cause"] == "drained"
    assert len(reports) == len(set(reports)) == 6 * 20
    assert (looking.study(study).attempt, looking.study(study).deaths) == (1, 0)
    looking.close()
