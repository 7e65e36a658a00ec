"""The few calls of Ray's Jobs API that drivers need, only with the standard library.

https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from tuner.errors import StudyError, one_line, shown
from tuner.machine.web_opener import opener_for
from tuner.service.http_client import parts_of_url, request_for
from tuner.text import printable

SECONDS = 5.0  # timeout of an answer: other studies wait meanwhile
LARGEST_ANSWER = 20_000_000
LONGEST_REASON = 300
_JOBS = "/api/jobs/"


class ClusterAwayError(OSError):
    """The cluster doesn't answer about a job."""


class JobRefusedError(OSError):
    """The cluster refused the job."""


class JobsApi:
    """The Jobs API of one cluster, with its token if it needs one. Raises StudyError for an invalid address."""

    def __init__(self, url: str, token: str | None = None, seconds: float = SECONDS) -> None:
        self.url = _checked(url)
        self._token, self._seconds = token, seconds
        self._opener = opener_for(self.url)

    def submit(self, job: str, command: str, environment: Mapping[str, str]) -> None:
        """Start a job; its name is unique. Raises JobRefusedError or ClusterAwayError."""
        body = {"entrypoint": command, "submission_id": job, "runtime_env": {"env_vars": dict(environment)}}
        self._ask("POST", _JOBS, body)

    def status(self, job: str) -> str | None:
        """Ray's name of the job's state; None for a job that the cluster doesn't know. Raises ClusterAwayError."""
        try:
            told = self._ask("GET", _JOBS + quote(job, safe=""))
        except JobRefusedError as error:
            if error.errno == http.HTTPStatus.NOT_FOUND:
                return None
            raise ClusterAwayError(str(error)) from error  # an expired token says nothing about the job
        status = told.get("status") if isinstance(told, dict) else None
        if not isinstance(status, str):
            raise ClusterAwayError(f"{self.url} answers, but not as Ray's Jobs API does; check --ray-jobs")
        return status

    def stop(self, job: str) -> None:
        """Ask the job to end. Raises JobRefusedError or ClusterAwayError."""
        self._ask("POST", f"{_JOBS}{quote(job, safe='')}/stop")

    def logs(self, job: str) -> str:
        """The job's output. Raises JobRefusedError or ClusterAwayError."""
        told = self._ask("GET", f"{_JOBS}{quote(job, safe='')}/logs")
        logs = told.get("logs") if isinstance(told, dict) else None
        return logs if isinstance(logs, str) else ""

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = request_for(self.url + path, method, body, self._token)
        try:
            with self._opener.open(request, timeout=self._seconds) as answer:
                return json.loads(answer.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            why = one_line(str(getattr(reason, "strerror", None) or reason)) or type(reason).__name__
            raise ClusterAwayError(f"the cluster at {self.url} doesn't answer ({why})") from error
        except (ValueError, RecursionError) as error:
            raise ClusterAwayError(f"{self.url} answers, but not as Ray's Jobs API does; check --ray-jobs") from error

    def _refused(self, status: int, answer: IO[bytes]) -> OSError:
        try:
            words = printable(one_line(answer.read(10_000).decode(errors="replace")))[-LONGEST_REASON:]
        except (OSError, http.client.HTTPException):
            words = ""
        if status in (401, 403):
            fix = "set $RAY_AUTH_TOKEN to the cluster's token, and serve again"
            return JobRefusedError(status, f"the cluster at {self.url} doesn't take the token ({status}); {fix}")
        if status > 500:  # a proxy whose cluster is unreachable
            return ClusterAwayError(f"the cluster at {self.url} doesn't answer ({status})")
        return JobRefusedError(status, f"the cluster at {self.url} answers {status}: {words}")


def token_here() -> str | None:
    """The cluster's token as Ray finds it: $RAY_AUTH_TOKEN, the file of $RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token.

    Raises StudyError if the named file can't be read.
    """
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        return Path(named or Path.home() / ".ray/auth_token").read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError, RuntimeError) as error:
        if named:
            raise StudyError(
                f"$RAY_AUTH_TOKEN_PATH needs a file with the cluster's token, got {shown(named)}, which can't be read; "
                "correct it, or leave it out"
            ) from error
        return None


def _checked(url: str) -> str:
    """The address of a dashboard. Raises StudyError."""
    parts = parts_of_url(url)
    if parts is None or parts.query or parts.fragment:
        raise StudyError(
            f"--ray-jobs needs the address of a cluster's dashboard, got {shown(url)}; write it as http://127.0.0.1:8265"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
