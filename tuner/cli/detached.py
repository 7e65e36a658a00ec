"""A driver in a process of its own: `python -m tuner.cli.detached FOLDER/task.json`, started by the search service.

The task is an object with `study` (a file's path) or `run` (a folder to go on with), `storage`, `options`, `limits`,
`driving`, `retry`, `cpus` (numbers, or null for all) and `allotment` (devices that change, or null). For its files in
the folder see `tuner.lifecycle.task_folder`.
The output of `tuner run` goes to stdout, for `tuner logs`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from tuner.lifecycle.allotment import Allotment
from tuner.lifecycle.task_folder import Task, perform, tell_begun
from tuner.storage.folder import LocalFolder


def search(task: Task, folder: LocalFolder) -> str:
    """Run or resume; returns the run's status."""
    if task["cpus"]:
        os.sched_setaffinity(0, task["cpus"])
    driving = {
        **task["driving"],
        "begun": lambda path: tell_begun(folder, path),
        "allotment": Allotment.of(task, folder),
    }
    return _resumed(task, driving) if task["run"] is not None else _begun(task, driving)


def _begun(task: Task, given: Mapping[str, Any]) -> str:
    from tuner.console.live_table import Plan, display
    from tuner.driver import Driving, run
    from tuner.study.file import load_study

    study = load_study(task["study"])
    plan = Plan.of(study.with_options(**task["options"]))
    with display(plan, sys.stdout, quiet=False) as shown:
        driving = Driving(**given, listeners=[shown])
        return run(study, task["options"], driving, storage=task["storage"]).status


def _resumed(task: Task, given: Mapping[str, Any]) -> str:
    from tuner.console.live_table import Plan, display
    from tuner.driver import Driving, resume
    from tuner.results import load_run

    earlier, limits = load_run(task["run"]), task["limits"]
    plan, opening = Plan.of_run(earlier, limits), "reading the run, then starting Ray"
    with display(plan, sys.stdout, quiet=False, earlier=earlier.events, opening=opening) as shown:
        driving = Driving(**given, listeners=[shown])
        return resume(task["run"], limits, driving, retry=[] if task["retry"] else None).status


if __name__ == "__main__":
    sys.exit(perform(sys.argv[1], search))
