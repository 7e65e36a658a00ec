"""Shows a run in MLflow, in a process of its own (see `following`).

The experiment is called like the study. The search is a run, with the winner's files, the report and the tables, and
the parent of a run for each trial: its configuration are parameters, how it ended are tags. MLflow's runs are found by
a tag, so each is made once, however often a mirror begins anew.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import tempfile
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tuner.history.events import finite
from tuner.history.records import TrialRecord
from tuner.history.scored import BEST
from tuner.history.steered import hashtags
from tuner.history.trial_record import flat_config
from tuner.mirrors.following import Mirror, follow, written
from tuner.mirrors.process import SERVERS, without_login
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run
from tuner.results.summaries import summary_of_run

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

KEY, NOTES = "tuner.key", "mlflow.note.content"  # tags
LONGEST_NAME, LONGEST_PARAMETER, LONGEST_TAG = 250, 6000, 8000  # characters that MLflow allows
MOST = {"metrics": 1000, "params": 100, "tags": 100}  # in one request
ABOUT = ("metric", "mode", "seed", "search", "scheduler", "trial", "git_commit")  # parameters of the search
FILES = ("report.html", "trials.csv", "history.csv", "run.json")
DEFAULTS = {  # variables of MLflow's client; seconds, and how often a request is sent again
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_REFUSED = re.compile(r"[^/\w.\- :]")  # in names of metrics and parameters
_STATUSES = {"completed": "FINISHED", "stopped": "FINISHED", "finished": "FINISHED", "failed": "FAILED"}


class MlflowMirror(Mirror["Run"]):
    """Sends a run's events to the server at MLFLOW_TRACKING_URI.

    What is sent twice, as an answer was lost, has the same time and value: a server keeps it once.
    """

    folder = "mlflow"

    def __init__(self, run: RecordedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        self._client, self._name = MlflowClient(), os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.name
        super().__init__(run, place=f"{without_login(os.environ['MLFLOW_TRACKING_URI'])} {self._name}")
        self.failures = (MlflowException, OSError, ImportError)  # the last one of a library for a store of files
        self._parent: Run | None = None
        self._unsent: dict[str, list[Metric]] = {}  # of epochs, by MLflow's runs

    def save_state(self) -> None:
        """Send the metrics that wait, then remember that everything is there."""
        for run_id in list(self._unsent):
            self._send(run_id, "metrics", self._unsent[run_id])
            del self._unsent[run_id]
        super().save_state()

    def _open(self, trial: TrialRecord) -> Run:
        if trial.trial not in self._shown:
            tags = {"mlflow.parentRunId": self._opened_parent().info.run_id}
            title, config = f"{self._run.title} {trial.trial}", flat_config(trial.config_in_json)
            self._shown[trial.trial] = self._start(trial.trial, title, trial.started, config, tags)
            self._send_notes(trial)
        return self._shown[trial.trial]

    def _send_epoch(self, trial: TrialRecord, epoch: int, metrics: Mapping[str, Any]) -> None:
        waiting = self._unsent.setdefault(self._open(trial).info.run_id, [])
        waiting += self._metrics(metrics, self._time, epoch)

    def _send_notes(self, trial: TrialRecord) -> None:
        self._describe(self._open(trial), {NOTES: self._notes(trial)})

    def _close(self, trial: TrialRecord) -> None:
        noted = hashtags(note.text for note in self._record.steered.notes_of(trial.trial))
        tags: dict[str, Any] = dict.fromkeys(noted, "true")
        tags |= {BEST: "true" if trial.trial == self._marked else None}
        self._end(self._open(trial), tags | self._outcome(trial), trial.ended or self._time, trial.epoch)
        del self._shown[trial.trial]

    def _summarise(self, run: RecordedRun) -> None:
        parent, summary, notes = self._opened_parent(), summary_of_run(run), run.record.steered.notes_of(None)
        told: dict[str, Any] = {**dict.fromkeys(hashtags(note.text for note in notes), "true"), BEST: None}
        told |= {NOTES: written(notes)} if notes else {}
        told |= {BEST: run.best.trial, "best_epoch": run.best_epoch} if run.best else {}
        told |= {"end_reason": run.end_reason, "wall_seconds": summary["wall_seconds"], **summary["trials"]}
        self._end(parent, {**told, **run.best_metrics, "status": run.status}, self._time, 0)
        with tempfile.TemporaryDirectory() as temporary:
            for name in filter(run.folder.exists, FILES):
                (Path(temporary) / name).write_bytes(run.folder.read(name))
            self._client.log_artifacts(parent.info.run_id, temporary)
            if run.folder.exists(f"{BEST}/config.json"):
                files = run.folder.fetch(BEST, Path(temporary) / BEST)
                self._client.log_artifacts(parent.info.run_id, str(files), BEST)

    # Inside

    def _opened_parent(self) -> Run:
        if self._parent is None:
            info = {name: self._run.info.get(name) for name in ABOUT}
            self._parent = self._start("summary", self._run.title, self._time, info, {})
            server, its = os.environ["MLFLOW_TRACKING_URI"].rstrip("/"), self._parent.info
            if urlsplit(server).scheme in SERVERS:
                self._url = f"{without_login(server)}/#/experiments/{its.experiment_id}/runs/{its.run_id}"
        return self._parent

    def _start(self, of: str, name: str, started: float, parameters: dict[str, Any], tags: dict[str, str]) -> Run:
        """MLflow's run for a trial, or for the search: the one that an earlier mirror made, or a new one."""
        from mlflow.entities import Param

        client = self._client
        known = self._parent.info if self._parent else client.get_experiment_by_name(self._name)
        experiment = str(known.experiment_id if known else client.create_experiment(self._name))
        found: Run
        if there := client.search_runs([experiment], f"tags.`{KEY}` = '{self._key(of)}'", max_results=1):
            found = there[0]
            client.update_run(found.info.run_id, "RUNNING")
        else:
            about = {KEY: self._key(of), "mlflow.source.name": "tuner", **tags}
            found = client.create_run(experiment, round(1000 * started), about, name)
        texts = {key: str(value) for key, value in _renamed(parameters).items() if value is not None}
        for key in [key for key, text in texts.items() if len(text) > LONGEST_PARAMETER]:
            print(f"the parameter {key!r} is cut, as MLflow takes {LONGEST_PARAMETER} characters", flush=True)
            texts[key] = f"{texts[key][: LONGEST_PARAMETER - 1]}…"
        new = [Param(key, text) for key, text in texts.items() if key not in found.data.params]  # none can be changed
        self._send(found.info.run_id, "params", new)
        return found

    def _end(self, shown: Run, outcome: Mapping[str, Any], time: float, step: int) -> None:
        """Send how a trial or the search ended: its numbers as metrics, the rest as tags."""
        numbers = {name: value for name, value in outcome.items() if finite(value)}
        run_id = shown.info.run_id
        self._send(run_id, "metrics", [*self._unsent.pop(run_id, []), *self._metrics(numbers, time, step)])
        self._describe(shown, {name: value for name, value in outcome.items() if name not in numbers})
        self._client.set_terminated(run_id, _STATUSES.get(outcome["status"], "KILLED"), round(1000 * time))

    def _describe(self, shown: Run, tags: Mapping[str, Any]) -> None:
        """Set its tags; those that are None it no longer has."""
        from mlflow.entities import RunTag

        texts = {name: str(value)[-LONGEST_TAG:] for name, value in tags.items() if value is not None}  # logs' ends
        self._send(shown.info.run_id, "tags", [RunTag(*each) for each in texts.items()])
        for name in (tags.keys() - texts.keys()) & shown.data.tags.keys():
            self._client.delete_tag(shown.info.run_id, name)

    def _metrics(self, metrics: Mapping[str, Any], time: float, step: int) -> list[Metric]:
        from mlflow.entities import Metric

        return [Metric(key, float(value), round(1000 * time), step) for key, value in _renamed(metrics).items()]

    def _send(self, run_id: str, kind: str, things: list[Any]) -> None:
        for start in range(0, len(things), MOST[kind]):
            self._client.log_batch(run_id, **{kind: things[start : start + MOST[kind]]})  # type: ignore[arg-type]


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by names as MLflow takes them: what it refuses becomes _, one that is taken gets a number."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        plain = posixpath.normpath(f"/{_REFUSED.sub('_', name)[: LONGEST_NAME - 5]}").lstrip("/") or "_"
        options = chain([plain], (f"{plain}_{number}" for number in count(2)))
        found[next(each for each in options if each not in found)] = value
    return found


def _mirror(path: str, address: str | None = None) -> bool:
    """Show the run; returns whether MLflow got everything. A search gives the address by the environment."""
    address = address or os.environ["MLFLOW_TRACKING_URI"]
    parts = urlsplit(address)
    if parts.username is not None and parts.scheme in SERVERS:  # apart, so that no message of the client has them
        os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username)
        os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
        address = without_login(address)
    os.environ.update({**DEFAULTS, **os.environ, "MLFLOW_TRACKING_URI": address})
    run = load_run(path)
    return follow(run, lambda: MlflowMirror(run))


if __name__ == "__main__":
    sys.exit(0 if _mirror(*sys.argv[1:]) else 1)
