"""The content of run.json for a run that starts, for each driver that works on it, and while it works."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.history.events import Event
from tuner.history.run_info import FORMAT, now, write_info
from tuner.lifecycle.study_changes import comparable
from tuner.lifecycle.targets import redacted
from tuner.machine.hardware import this_machine
from tuner.machine.installation import version_of
from tuner.space import space_record
from tuner.space.values import recorded
from tuner.storage.folder import Folder
from tuner.study.declaration import Study
from tuner.study.resources import Resources

WRITE_SECONDS = 5.0  # between two writes of run.json while a search runs, at least
_PACKAGES = ("tuner", "ray", "torch", "torchvision", "timm", "transformers", "hyperopt", "numpy", "pandas")


def describe_run(study: Study, options: dict[str, Any], resources: Resources, address: str | None) -> dict[str, Any]:
    """The content of run.json when the search starts."""
    return {
        "format": 2 if study.search_space.in_json else FORMAT,
        "study": study.name,
        "metric": study.metric,
        "mode": study.mode,
        "second": None if study.second is None else asdict(study.second),
        "seed": study.seed,
        "space": space_record(study.search_space),
        "search": repr(study.search),
        "scheduler": repr(study.scheduler),
        "asked": False,  # whether a user's program asks for trials
        "rungs": study.scheduler.rungs(study.budget.max_epochs),
        "start_from": recorded(study.starting_points),
        "defaults": trainer_defaults(study),  # by dotted name
        "warm_start": repr(study.warm_start),
        "resources": {  # of each trial
            "cpus": resources.cpus,
            "gpus": resources.gpus,
            "strategy": resources.strategy,
            "placement": resources.placement,
            "packed": study.resources.packed,
        },
        "trial": repr(study.declared_trial),
        "started_from": study.declared_trial.started_from,
        "comparable": comparable(study),
        "data_fingerprint": study.declared_trial.fingerprint(),
        "weights_fingerprint": study.declared_trial.weights_fingerprint(),
        "function_sources": function_sources(study),
        "options": options | {name: recorded(options[name]) for name in ("fixed",) if name in options},
        "working_directory": str(Path.cwd()),  # for relative paths in the study and options
        "sessions": 1,
        "started": now(),
        "git_commit": _git_commit(),
        "study_file": str(study.source) if study.source else None,
        "report": None,
        **describe_session(study, address),
    }


def trainer_defaults(study: Study) -> dict[str, Any]:
    """The trainer's default of each hyperparameter that is searched; trials that are functions have none."""
    values = getattr(study.declared_trial, "hyperparameters", None)
    known = values(study.search_space.constants) if callable(values) else {}
    return {name: known[name] for name in study.search_space.dimensions if known.get(name) is not None}


def function_sources(study: Study, version: int = 1, before: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """The fingerprint of a function's code by version of the study file, None if the code isn't unique.

    `before` is what the run's earlier drivers recorded: nothing, if an older version of tuner wrote it.
    """
    code = study.declared_trial.source_fingerprint()
    if before is None:
        return {str(version): code}
    if code is None:  # read from a copy that no longer exists, as with object storage
        return dict(before)
    same = bool(before) and before.get(str(version), code) == code
    return {**before, str(version): code if same else None}


def describe_session(study: Study, address: str | None) -> dict[str, Any]:
    """The fields about one driver of the run."""
    return {
        "budget": {**asdict(study.budget), "trials": study.trials},
        "failures": asdict(study.failures),
        "limits": study.value_limits,
        "costs": None if study.costs is None else study.costs.record(),
        "forecast": study.forecast,
        "command": redacted(sys.argv),
        "address": address,
        "pid": os.getpid(),
        "host": platform.node(),
        "machine": this_machine().record(),
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in _PACKAGES},
        "ended": None,
        "end_reason": None,
    }


def _git_commit() -> str | None:
    """Commit of the working directory's repository, with "+changes" if there are uncommitted ones."""
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        changes = subprocess.run(
            ["git", "status", "--porcelain"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


class InfoWriter:
    """Listens to a search, and writes into run.json how many trials have which status, as `counts()` says."""

    def __init__(self, folder: Folder, info: dict[str, Any], counts: Callable[[], Mapping[Any, int]]) -> None:
        self._folder, self._info, self._counts = folder, info, counts
        self._written = time.monotonic()

    def on_event(self, event: Event) -> None:
        """Write run.json if it is out of date."""
        if time.monotonic() - self._written > WRITE_SECONDS and event["event"] == "trial_ended":
            self._written = time.monotonic()
            self._info["trials"] = self._counts()
            write_info(self._folder, self._info)
