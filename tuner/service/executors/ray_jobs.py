"""Drivers as jobs of a Ray cluster, only through its dashboard; Ray itself isn't imported here.

The cluster's machines see the storage folder under the same path, and have tuner installed. A driver's folder has the
files of a local one (see `local.py`), and `job.json`: which job it is, written before the job is submitted, so that the
next server finds it even if this one is killed in between; and `seen.json` once the cluster knew the job.

The cluster is asked at most every `ASK_SECONDS` about a job. If it doesn't answer, it isn't asked for `REST_SECONDS`:
until it answers, every driver keeps its last known state.
"""

from __future__ import annotations

import json
import shlex
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.service.executors.driver_reports import LOG, ended_of, log_end, read, run_of
from tuner.service.executors.executor import Look, Task, trials_on
from tuner.service.executors.jobs_api import ClusterAwayError, JobRefusedError, JobsApi
from tuner.storage.folder import LocalFolder
from tuner.text import printable

COMMAND = ("python", "-m", "tuner.cli.detached")  # by the cluster's own interpreter
STOP_SECONDS = 60  # for a job to save and end, before it is killed
ASK_SECONDS = 1.5
REST_SECONDS = 5.0  # after a cluster didn't answer
STOP_AGAIN_SECONDS = 5.0  # a job that is still pending ignores an order to stop
SURE_SECONDS = 60.0  # after which a submission can't reach the cluster any more
_OVER = ("STOPPED", "SUCCEEDED", "FAILED")


@dataclass
class _Seen:
    """The cluster's last answer about a job, when it came (monotonic clock), and when the job was asked to stop."""

    status: str | None = None
    asked: float = float("-inf")
    stopped: float = float("-inf")


class RayJobs:
    """Each driver is a job; `command` runs its task by the cluster's interpreter."""

    def __init__(
        self, api: JobsApi, command: Sequence[str] = COMMAND, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._command, self._clock = api, tuple(command), clock
        self._seen: dict[Path, _Seen] = {}
        self._away: str | None = None
        self._rest_until = float("-inf")

    def start(self, task: Task, folder: Path) -> None:
        """See `Executor`; the folder is a new one. Raises OSError if the cluster refuses, or doesn't answer."""
        folder.mkdir(parents=True)
        told = json.loads(task.as_json(kind="cluster"))
        driving = {**told["driving"], "address": "auto"}  # the cluster that the job runs on
        driving["concurrency"] = at_once(task, driving.get("concurrency"))
        told |= {"cpus": None, "driving": driving}  # the cluster's CPUs have no numbers here
        if task.study is not None and any(device.kind == "gpu" for device in task.devices):
            told["options"].setdefault("gpus", task.each)  # its nodes may come later, when the autoscaler starts them
        (folder / "task.json").write_text(json.dumps(told, indent=2), encoding="utf-8")
        job = f"tuner-{uuid.uuid4().hex}"
        LocalFolder(folder).create("job.json", json.dumps({"job": job}).encode())
        log = shlex.quote(str(folder / LOG))
        command = f"exec {shlex.join([*self._command, str(folder / 'task.json')])} >> {log} 2>&1"
        try:
            self._api.submit(job, command, {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)})
        except JobRefusedError as error:
            (folder / LOG).write_text(f"the cluster refused the job: {error}\n", encoding="utf-8")
            _give_up(folder)
            raise
        except ClusterAwayError as error:
            self._rest(error)
            raise

    def look(self, folder: Path) -> Look:
        """See `Executor`; `problem` says why its state may be an old one."""
        seen = self._ask(folder)
        run = run_of(folder)  # read after the state, so that its last reports are there
        if self._away is not None and (seen.status not in _OVER):
            return Look("running" if run else "starting", run, problem=self._away)
        if seen.status is None:
            return self._unknown(folder, run)
        if seen.status in _OVER:
            return Look("gone", run, ended_of(folder))
        return Look("running" if run else "starting", run)

    def _unknown(self, folder: Path, run: str | None) -> Look:
        """A job that the cluster doesn't know: the cluster was restarted, or never got the job, or hasn't got it yet.

        A submission whose answer was lost may still arrive, and a cluster may take a moment to report a job whose
        driver runs already. So an unseen job is waited for, and only given up if its driver hasn't started and then
        never will, see `process.json` in `local.py`. Otherwise a study could get two drivers.
        """
        process, ended = read(folder, "process.json"), ended_of(folder)
        is_given_up = process == {} or not (folder / "job.json").exists()
        if self._was_seen(folder) or is_given_up or ended is not None:
            return Look("gone", run, ended, rebooted=not is_given_up)
        is_sure = time.time() - (folder / "job.json").stat().st_mtime >= SURE_SECONDS
        if is_sure and process:  # the cluster was restarted
            return Look("gone", run, rebooted=True)
        if is_sure and _give_up(folder):
            return Look("gone", run)
        problem = f"the cluster at {self._api.url} has not said whether it took the job"
        return Look("running" if run else "starting", run, problem=problem)

    def interrupt(self, folder: Path) -> None:
        """See `Executor`: SIGTERM, and SIGKILL a minute later, both by the cluster."""
        seen = self._seen.setdefault(folder, _Seen())
        job = _job(folder)
        if job is None or self._clock() < max(seen.stopped + STOP_AGAIN_SECONDS, self._rest_until):
            return
        seen.stopped = self._clock()
        try:
            self._api.stop(job)
        except ClusterAwayError as error:
            self._rest(error)
        except JobRefusedError:  # it is over, or unknown: the next look shows that
            seen.asked = float("-inf")

    def kill(self, folder: Path) -> None:
        """See `Executor`; for a cluster there is no harder way than `interrupt`."""
        self.interrupt(folder)

    def log(self, folder: Path, most: int) -> bytes:
        """See `Executor`: the log in the storage, or else what the cluster has of a job that failed to start."""
        stored = log_end(folder, most)
        if stored is not None:
            return stored
        job = _job(folder)
        if job is None or self._clock() < self._rest_until:
            return b""
        try:
            return self._api.logs(job)[-most:].encode()[-most:]
        except (ClusterAwayError, JobRefusedError):
            return b""

    def _ask(self, folder: Path) -> _Seen:
        """What the cluster says about a job, now or a moment ago."""
        seen = self._seen.setdefault(folder, _Seen())
        now, job = self._clock(), _job(folder)
        if job is None or seen.status in _OVER or now < max(seen.asked + ASK_SECONDS, self._rest_until):
            return seen
        try:
            seen.status = self._api.status(job)
            if seen.status is not None and not self._was_seen(folder):
                LocalFolder(folder).create("seen.json", b"{}")
        except ClusterAwayError as error:
            self._rest(error)
            return seen
        seen.asked, self._away = now, None
        return seen

    def _rest(self, error: Exception) -> None:
        self._away = printable(str(error))
        self._rest_until = self._clock() + REST_SECONDS

    def _was_seen(self, folder: Path) -> bool:
        return (folder / "seen.json").exists()


def _give_up(folder: Path) -> bool:
    """Make the driver do nothing if it still starts; False if it has already started."""
    return LocalFolder(folder).create("process.json", b"{}")


def at_once(task: Task, wanted: int | None) -> int:
    """Trials at once that fit on the most devices that the study uses: the driver itself sees the whole cluster."""
    fit = trials_on(max(task.expected, len(task.devices)), task.each)
    return fit if wanted is None else min(wanted, fit)


def _job(folder: Path) -> str | None:
    told: dict[str, Any] | None = read(folder, "job.json")
    job = told.get("job") if told else None
    return job if isinstance(job, str) else None
