"""MLflow's own server on loopback, and what it has."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run


@dataclass(frozen=True)
class Server:
    """A running server, or a database."""

    url: str
    client: MlflowClient = field(repr=False)

    def runs(self, experiment: str) -> dict[str, Run]:
        """The runs of an experiment by their names."""
        found = self.client.get_experiment_by_name(experiment)
        assert found is not None
        runs = self.client.search_runs([found.experiment_id])
        by_name = {run.info.run_name: run for run in runs}
        assert len(by_name) == len(runs)  # none twice
        return by_name

    def history(self, run: Run, metric: str) -> list[tuple[int, float]]:
        """Each step and value that was sent, in the order of the steps."""
        found = self.client.get_metric_history(run.info.run_id, metric)
        return sorted((one.step, one.value) for one in found)

    def files(self, run: Run, folder: str | None = None) -> set[str]:
        """The paths of its artifacts."""
        return {one.path for one in self.client.list_artifacts(run.info.run_id, folder)}


def at(url: str) -> Server:
    return Server(url, MlflowClient(url))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def mlflow_server(folder: Path, port: int | None = None) -> Iterator[Server]:
    """The server, whose runs and artifacts are in this folder; without its queue of jobs, which needs more libraries."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    store, files = f"sqlite:///{folder / 'mlflow.db'}", str(folder / "artifacts")
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *options, "--backend-store-uri", store]
    around: dict[str, Any] = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--artifacts-destination", files],
            env={**os.environ, **around},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        await_answer(f"{url}/health", process)
        yield at(url)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def await_answer(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert process.poll() is None
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(url)
