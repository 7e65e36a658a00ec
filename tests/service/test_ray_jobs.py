"""Drivers as jobs of a cluster: against a small server that keeps Ray's protocol and runs what it is given."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.service import driver
from tests.service.running import wait_for, wait_until
from tests.service.submissions import ANNE, STUDY, submission
from tuner.errors import StudyError
from tuner.service.devices import devices_of_cluster
from tuner.service.executors import RayJobs, Task
from tuner.service.executors import ray_jobs as module
from tuner.service.executors.jobs_api import ClusterAwayError, JobRefusedError, JobsApi, token_here
from tuner.service.executors.ray_jobs import at_once
from tuner.service.model import Device, State
from tuner.service.service import Service

COMMAND = (sys.executable, driver.__file__)
LONG = STUDY.replace("trials=4", "trials=4000")
TOKEN = "the cluster's own token"


class Cluster:
    """Real processes behind Ray's paths and words; `answers` are given instead while there are some."""

    def __init__(self) -> None:
        self.jobs: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: set[str] = set()
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.answers: list[tuple[int, bytes]] = []
        self.loses_answers = False  # to submissions, which it takes
        self.hides = False  # jobs that it took a moment ago
        self.port = 0
        self.server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cluster.asked.append(self.path)
                job = self.path.removeprefix("/api/jobs/").removesuffix("/logs")
                if job not in cluster.jobs or cluster.hides:
                    self.say(404, f"Job {job} does not exist".encode())
                else:
                    self.say(200, json.dumps({"status": cluster.status(job), "logs": "nothing"}).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path.endswith("/stop"):
                    job = self.path.split("/")[3]
                    cluster.stopped.add(job)
                    os.killpg(cluster.jobs[job].pid, signal.SIGTERM)
                    self.say(200, b'{"stopped": true}')
                    return
                told = json.loads(body)
                cluster.bodies.append(told)
                if not cluster.answers:
                    job = told["submission_id"]
                    cluster.jobs[job] = subprocess.Popen(told["entrypoint"], shell=True, start_new_session=True)
                self.say(504 if cluster.loses_answers else 200, b"{}")

            def say(self, status: int, content: bytes) -> None:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, content = 401, b"Unauthorized: Missing authentication token"
                elif cluster.answers:
                    status, content = cluster.answers[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def status(self, job: str) -> str:
        code = self.jobs[job].poll()
        if code is None:
            return "RUNNING"
        return "STOPPED" if job in self.stopped else "FAILED" if code else "SUCCEEDED"

    def close(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(module, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(module, "REST_SECONDS", 0.2)
    found = Cluster()
    found.open()
    yield found
    found.close()
    for job in found.jobs.values():
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


@contextmanager
def serving(storage: Path, cluster: Cluster, cpus: int = 1) -> Iterator[Service]:
    executor = RayJobs(JobsApi(cluster.url, TOKEN), COMMAND)
    with Service(storage, devices=devices_of_cluster(cpus, 0), executor=executor) as service:
        yield service


def epochs(service: Service, study: int) -> int:
    found = service.progress(study)
    return 0 if found is None else found.epochs


def test_a_study_runs_as_a_job(tmp_path: Path, cluster: Cluster) -> None:
    storage = tmp_path / "a folder's name"
    with serving(storage, cluster) as service:
        study = service.submit(submission(options={"concurrency": 8}), ANNE).id
        found = wait_until(service, study, State.FINISHED)
        run = service.run(study)
    assert run is not None
    assert (run.status, len(run.record.trials), found.attempt) == ("finished", 4, 1)
    (body,) = cluster.bodies
    assert body["runtime_env"] == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}}
    assert TOKEN not in json.dumps(body)
    told = json.loads((storage / ".service/drivers/1-1/task.json").read_text())
    assert told["driving"] == {"address": "auto", "concurrency": 1}
    assert told["cpus"] is None


@pytest.mark.slow
def test_no_more_jobs_than_fit_and_one_is_paused_and_another_cancelled(tmp_path: Path, cluster: Cluster) -> None:
    with serving(tmp_path, cluster, cpus=2) as service:
        studies = [service.submit(submission(LONG, devices=1), ANNE).id for _ in range(3)]
        wait_for(lambda: all(epochs(service, study) > 1 for study in studies[:2]))
        assert len(cluster.jobs) == 2
        service.cancel(studies[0], ANNE)
        wait_for(lambda: epochs(service, studies[2]) > 0)
        service.pause(studies[1], ANNE)
        assert wait_until(service, studies[1], State.PAUSED).reason == "paused by anne"
        assert len(cluster.jobs) == 3
        assert len(cluster.stopped) == 1  # the other one ended by itself
        service.cancel(studies[2], ANNE)
        wait_for(lambda: not service.study(studies[2]).devices)


@pytest.mark.slow
def test_a_job_that_died_goes_on_as_another(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.service.outcomes.WAITS", (0.1, 0.1, 0.1))
    with serving(tmp_path, cluster) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 2)
        os.killpg(next(iter(cluster.jobs.values())).pid, signal.SIGKILL)
        wait_for(lambda: service.study(study).attempt == 2)
        found = wait_until(service, study, State.RUNNING)
        service.cancel(study, ANNE)
        wait_for(lambda: not service.study(study).devices)
    assert found.run == service.study(study).run
    assert len(cluster.jobs) == 2


def test_the_next_server_adopts_jobs_and_a_cluster_that_is_away_changes_nothing(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Nor does a second study start, for which the cluster has no room."""
    with serving(tmp_path, cluster) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 1)
        waiting = service.submit(submission(LONG), ANNE).id
        wait_until(service, waiting, State.QUEUED)
        assert (service.study(waiting).state, len(cluster.jobs)) == (State.QUEUED, 1)
    cluster.close()
    with serving(tmp_path, cluster) as service:
        wait_for(lambda: service.study(study).reason)
        found = service.study(study)
        assert (found.state, found.attempt) == (State.RUNNING, 1)
        assert found.reason == f"the cluster at {cluster.url} doesn't answer (Connection refused)"
        before = epochs(service, study)
        wait_for(lambda: epochs(service, study) > before)  # its events come by the storage
        cluster.open()
        wait_for(lambda: service.study(study).reason is None)
        assert (service.study(study).state, len(cluster.jobs)) == (State.RUNNING, 1)
        service.cancel(waiting, ANNE)
        service.cancel(study, ANNE)
        wait_for(lambda: not service.study(study).devices)


def test_a_cluster_that_has_forgotten_a_job_was_restarted(tmp_path: Path, cluster: Cluster) -> None:
    with serving(tmp_path, cluster) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 1)
        (job,) = cluster.jobs.values()
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        cluster.jobs.clear()
        wait_for(lambda: service.study(study).attempt == 2)
        wait_until(service, study, State.RUNNING)
        assert service.study(study).deaths == 0
        service.cancel(study, ANNE)
        wait_for(lambda: not service.study(study).devices)


def test_a_cluster_that_refuses_jobs_fails_the_study_with_its_words(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.service.outcomes.WAITS", (0.1, 0.1, 0.1))
    executor = RayJobs(JobsApi(cluster.url, "another"), COMMAND)
    folder = tmp_path / "1-1"
    with pytest.raises(JobRefusedError, match=r"doesn't take the token \(401\); set \$RAY_AUTH_TOKEN"):
        executor.start(Task(None, None, str(tmp_path)), folder)
    assert b"the cluster refused the job: " in executor.log(folder, 1_000)
    assert "doesn't take the token" in str(executor.look(folder).problem)  # nothing is known of it
    cluster.answers = [(400, b"runtime_env is bad\x1b[2J")]
    with serving(tmp_path, cluster) as service:
        cluster.answers = [(400, b"runtime_env is bad\x1b[2J")]
        study = service.submit(submission(), ANNE).id
        wait_for(lambda: cluster.bodies)
        wait_for(
            lambda: "answers 400: runtime_env is bad" in executor.log(service.folder.attempt(study, 1), 1_000).decode()
        )
        cluster.answers.clear()
        wait_until(service, study, State.FINISHED)  # by a later attempt


def test_a_submission_whose_answer_is_lost_gives_a_study_one_driver(tmp_path: Path, cluster: Cluster) -> None:
    cluster.loses_answers = cluster.hides = True
    with serving(tmp_path, cluster) as service:
        study = service.submit(submission(), ANNE).id
        asked = len(cluster.asked)
        wait_for(lambda: cluster.bodies and len(cluster.asked) > asked)  # and it was told that there is no such job
        wait_for(lambda: "has not said whether it took the job" in str(service.study(study).reason))
        cluster.hides = False
        found = wait_until(service, study, State.FINISHED)
    assert (found.attempt, len(cluster.jobs)) == (1, 1)


def test_a_job_that_never_came_is_given_up_and_does_nothing_if_it_comes_then(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, folder = RayJobs(JobsApi(cluster.url, TOKEN)), tmp_path / "1-1"
    cluster.answers = [(503, b"")]
    with pytest.raises(ClusterAwayError):
        executor.start(Task("nowhere.py", None, str(tmp_path)), folder)
    cluster.answers = []
    executor = RayJobs(JobsApi(cluster.url, TOKEN))  # of the next server
    assert executor.look(folder).state == "starting"
    monkeypatch.setattr(module, "SURE_SECONDS", 0.0)
    assert executor.look(folder).state == "gone"
    task = ("tuner.cli.detached", str(folder / "task.json"))
    late = subprocess.run([sys.executable, "-m", *task], capture_output=True, text=True, check=False, timeout=300)
    assert (late.returncode, "this driver was given up before it started" in late.stdout) == (1, True)
    assert not (folder / "ended.json").exists()


def test_a_driver_that_came_is_waited_for_until_its_cluster_must_have_been_started_anew(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, folder = RayJobs(JobsApi(cluster.url, TOKEN)), tmp_path / "1-1"
    cluster.answers = [(503, b"")]
    with pytest.raises(ClusterAwayError):
        executor.start(Task("nowhere.py", None, str(tmp_path)), folder)
    cluster.answers = []
    (folder / "process.json").write_text('{"pid": 7}')
    (folder / "begun.json").write_text('{"run": "somewhere"}')
    executor = RayJobs(JobsApi(cluster.url, TOKEN))
    assert (executor.look(folder).state, executor.look(folder).run) == ("running", "somewhere")
    monkeypatch.setattr(module, "SURE_SECONDS", 0.0)
    found = executor.look(folder)
    assert (found.state, found.run, found.rebooted) == ("gone", "somewhere", True)


@pytest.mark.parametrize(
    ("kind", "study", "options", "gpus"),
    [
        ("gpu", "study.py", {}, 0.5),
        ("gpu", "study.py", {"gpus": 1}, 1),
        ("gpu", None, {}, None),  # a run that goes on knows
        ("cpu", "study.py", {}, None),
    ],
)
def test_a_driver_is_told_of_gpus_whose_nodes_may_not_be_there_yet(
    tmp_path: Path, cluster: Cluster, kind: Any, study: str | None, options: dict[str, Any], gpus: float | None
) -> None:
    cluster.answers = [(200, b"{}")]
    task = Task(study, None if study else "run", "runs", options, devices=(Device(kind, 0),), each=0.5)
    RayJobs(JobsApi(cluster.url, TOKEN)).start(task, tmp_path / "driver")
    assert json.loads((tmp_path / "driver" / "task.json").read_text())["options"].get("gpus") == gpus


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"status": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_jobs_api_says_nothing_of_a_job(cluster: Cluster, content: bytes) -> None:
    cluster.answers = [(200, content)]
    with pytest.raises(ClusterAwayError, match="not as Ray's Jobs API does"):
        JobsApi(cluster.url, TOKEN).status("x")


@pytest.mark.parametrize("status", [302, 403, 500, 502, 503])
def test_an_answer_about_something_else_says_nothing_of_a_job(cluster: Cluster, status: int) -> None:
    cluster.answers = [(status, b"no")]
    with pytest.raises(ClusterAwayError):
        JobsApi(cluster.url, TOKEN).status("x")
    assert cluster.asked == ["/api/jobs/x"]  # a token follows no redirect


def test_a_job_that_is_unknown_has_no_status(cluster: Cluster) -> None:
    assert JobsApi(cluster.url, TOKEN).status("../x?y") is None
    assert cluster.asked == ["/api/jobs/..%2Fx%3Fy"]


@pytest.mark.parametrize(
    ("each", "count", "wanted", "fit"),
    [(1, 4, None, 4), (2, 5, None, 2), (0.5, 2, None, 4), (1, 4, 3, 3), (4, 2, 9, 1)],
)
def test_as_many_trials_at_once_as_fit_on_what_was_given(each: float, count: int, wanted: int | None, fit: int) -> None:
    devices = tuple(Device("gpu", index) for index in range(count))
    assert at_once(Task(None, None, "", devices=devices, each=each), wanted) == fit


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8265", "ftp://x", "http://", "http://a:b@c", "http://x/?y", "http://x:99999"]
)
def test_what_is_no_dashboards_address_is_refused(url: str) -> None:
    with pytest.raises(StudyError, match="--ray-jobs needs the address of a cluster's dashboard"):
        JobsApi(url)


def test_the_token_is_where_ray_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    assert token_here() is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("home\n")
    assert token_here() == "home"
    (tmp_path / "named").write_text("named")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "named"))
    assert token_here() == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", " set ")
    assert token_here() == "set"
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "missing"))
    with pytest.raises(StudyError, match="RAY_AUTH_TOKEN_PATH needs a file"):
        token_here()
