"""A driver that nobody waits for: `python -m tuner.driver.detached FOLDER/task.json`, as the search service starts it.

The task is an object with `study` (a file's path) or `run` (a folder to go on with), `storage`, `options`, `limits`,
`driving`, `retry` and `cpus` (numbers, or null for all). What others should know of the driver is written beside it,
each file as a whole: `process.json`, which process it is, unless that is written already; `begun.json`, its run folder,
as soon as that is there; `ended.json`, how it ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.errors import StudyError, describe_error
from tuner.storage.folder import LocalFolder
from tuner.storage.identity import ProcessIdentity


def main(task_file: str) -> int:
    """Search, and say where and how it ended; returns the exit code."""
    file = Path(task_file).absolute()
    folder = LocalFolder(file.parent)
    task = json.loads(file.read_text(encoding="utf-8"))
    if not _claimed(folder):
        print("this driver was given up before it started; it does nothing")
        return 1
    if task["cpus"]:
        os.sched_setaffinity(0, task["cpus"])
    try:
        status, error = _search(task, folder), None
    except KeyboardInterrupt as interrupt:
        status, error = "interrupted", ["KeyboardInterrupt", str(interrupt)]
    except StudyError as refused:
        status, error = None, [type(refused).__name__, str(refused)]
    except Exception as failure:
        status, error = None, ["TunerError", describe_error(failure)]
    if error is not None:
        print(f"tuner: {error[1]}", flush=True)
    _tell(folder, "ended.json", {"status": status, "error": error})
    return 0 if error is None else 1


def _claimed(folder: LocalFolder) -> bool:
    """Whether this process is the one that the folder is for."""
    mine = json.dumps(asdict(ProcessIdentity.current())).encode()
    return folder.create("process.json", mine) or json.loads(folder.read("process.json")) == json.loads(mine)


def _search(task: Mapping[str, Any], folder: LocalFolder) -> str:
    """Run or resume; returns the run's status."""
    from tuner.driver import Driving, resume, run

    driving = Driving(**task["driving"], begun=lambda path: _tell(folder, "begun.json", {"run": path}))
    if task["run"] is not None:
        return resume(task["run"], task["limits"], driving, retry=[] if task["retry"] else None).status
    return run(task["study"], task["options"], driving, storage=task["storage"]).status


def _tell(folder: LocalFolder, name: str, told: Mapping[str, Any]) -> None:
    try:
        folder.write(name, json.dumps(told).encode())
    except OSError as error:  # a full disk: the search goes on, and its run folder says the rest
        print(f"tuner: {name} could not be written: {error}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
