"""A driver in a process of its own: its folder has its task, and files about it for other processes.

`task.json` says what to do. The driver adds, each written as a whole: `process.json`, which process it is, unless that
exists already; `begun.json`, its run folder, as soon as there is one; `ended.json`, how it ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.errors import StudyError, describe_error
from tuner.storage.folder import LocalFolder
from tuner.storage.identity import ProcessIdentity

Task = Mapping[str, Any]


def perform(task_file: str, search: Callable[[Task, LocalFolder], str]) -> int:
    """Search as a task says, and write where and how it ended; returns the exit code.

    `search` is given the task and its folder, and returns the run's status.
    """
    file = Path(task_file).absolute()
    folder = LocalFolder(file.parent)
    task = json.loads(file.read_text(encoding="utf-8"))
    if not _claimed(folder):
        print("this driver was given up before it started; it does nothing")
        return 1
    try:
        status, error = search(task, folder), None
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


def tell_begun(folder: LocalFolder, run: str) -> None:
    """Write where the run folder is."""
    _tell(folder, "begun.json", {"run": run})


def _claimed(folder: LocalFolder) -> bool:
    """Whether this process is the one for which the folder was made."""
    mine = json.dumps(asdict(ProcessIdentity.current())).encode()
    return folder.create("process.json", mine) or json.loads(folder.read("process.json")) == json.loads(mine)


def _tell(folder: LocalFolder, name: str, told: Mapping[str, Any]) -> None:
    try:
        folder.write(name, json.dumps(told).encode())
    except OSError as error:  # a full disk: the search goes on, and its run folder says the rest
        print(f"tuner: {name} could not be written: {error}", flush=True)
