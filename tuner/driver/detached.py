"""A driver that nobody waits for: `python -m tuner.driver.detached FOLDER/task.json`, as the search service starts it.

The task is an object with `study` (a file's path) or `run` (a folder to go on with), `storage`, `options`, `limits`,
`driving`, `retry` and `cpus` (numbers, or null for all). What it writes beside it: see `tuner.lifecycle.detached`.
"""

from __future__ import annotations

import os
import sys

from tuner.lifecycle.detached import Task, perform, tell_begun
from tuner.storage.folder import LocalFolder


def search(task: Task, folder: LocalFolder) -> str:
    """Run or resume; returns the run's status."""
    if task["cpus"]:
        os.sched_setaffinity(0, task["cpus"])
    from tuner.driver import Driving, resume, run

    driving = Driving(**task["driving"], begun=lambda path: tell_begun(folder, path))
    if task["run"] is not None:
        return resume(task["run"], task["limits"], driving, retry=[] if task["retry"] else None).status
    return run(task["study"], task["options"], driving, storage=task["storage"]).status


if __name__ == "__main__":
    sys.exit(perform(sys.argv[1], search))
