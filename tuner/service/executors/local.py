"""Drivers as processes of this machine, each in its own session, which outlive the server.

A driver's folder holds all that is known of it:

    task.json      what it is to do, by the server
    process.json   which process it is, by whoever of the two is first; a server that finds none after a while writes
                   an empty one, and a driver that finds it empty does nothing
    begun.json     its run folder, by the driver
    ended.json     how it ended, by the driver
    log            what it printed

and, if its devices change, `allotment.json` and `held.json`, see `tuner.service.allotments`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tuner.errors import describe_error
from tuner.machine.hardware import NVML_ORDER
from tuner.service.child_sessions import clean_environment, kill_session
from tuner.service.executors.driver_reports import LOG, ended_of, log_end, note_end, read, run_of
from tuner.service.executors.executor import Look, Task
from tuner.service.model import Device
from tuner.storage.folder import LocalFolder
from tuner.storage.identity import ProcessIdentity

START_SECONDS = 30.0  # until a driver without a known process must have written its process.json
COMMAND = (sys.executable, "-m", "tuner.cli.detached")
OF_SEARCHES = (sys.executable, "-m", "tuner.ask_tell.detached")  # whose trials workers ask for


class LocalProcesses:
    """Runs `command FOLDER/task.json` for each driver; `passed` are secrets that drivers may have."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        passed: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._command, self._passed, self._clock = tuple(command), passed, clock
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, task: Task, folder: Path) -> None:
        """See `Executor`; the folder is a new one."""
        folder.mkdir(parents=True)
        (folder / "task.json").write_text(task.as_json(), encoding="utf-8")
        try:
            child = self._started(task, folder)
        except OSError as error:  # there is no process to wait for
            note_end(folder, f"it could not be started: {describe_error(error)}")
            LocalFolder(folder).create("process.json", b"{}")
            raise
        self._children[folder] = child
        identity = ProcessIdentity.of(child.pid)
        LocalFolder(folder).create("process.json", json.dumps(asdict(identity)).encode())

    def _started(self, task: Task, folder: Path) -> subprocess.Popen[bytes]:
        with (folder / LOG).open("ab") as log:
            return subprocess.Popen(
                [*self._command, str(folder / "task.json")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment(self._passed) | visible_gpus((*task.devices, *task.others)),
                start_new_session=True,
            )

    def look(self, folder: Path) -> Look:
        """See `Executor`."""
        alive = self._lives(folder)  # checked before its last reports are read
        run, ended = run_of(folder), ended_of(folder)
        if alive:
            return Look("running" if run else "starting", run)
        identity = self._identity(folder)
        return Look("gone", run, ended, identity is not None and identity.boot != ProcessIdentity.current().boot)

    def interrupt(self, folder: Path) -> None:
        """See `Executor`: SIGTERM only to the driver, which ends its workers itself."""
        identity = self._identity(folder)
        if identity is not None and identity.lives():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(identity.pid, signal.SIGTERM)

    def kill(self, folder: Path) -> None:
        """See `Executor`: kills its session; Ray's processes have their own sessions, and a guard that ends them."""
        identity = self._identity(folder)
        if identity is not None and identity.lives():
            kill_session(identity.pid)

    def log(self, folder: Path, most: int) -> bytes:
        """See `Executor`."""
        return log_end(folder, most) or b""

    def _lives(self, folder: Path) -> bool:
        child = self._children.get(folder)
        if child is not None and child.poll() is not None:  # `poll` also reaps the process
            del self._children[folder]
            return False
        identity = self._identity(folder)
        if identity is not None:
            return bool(identity.lives())  # None: another boot or container
        return (folder / "task.json").exists() and not self._void(folder)

    def _void(self, folder: Path) -> bool:
        """Whether the driver will never run: it has no process, and its time to start is over."""
        if (folder / "process.json").exists():
            return True
        if self._clock() - (folder / "task.json").stat().st_mtime < START_SECONDS:
            return False
        return LocalFolder(folder).create("process.json", b"{}")

    def _identity(self, folder: Path) -> ProcessIdentity | None:
        told = read(folder, "process.json")
        try:
            return ProcessIdentity(**told) if told else None
        except TypeError:
            return None


def visible_gpus(devices: Sequence[Device]) -> dict[str, str]:
    """The environment in which a driver sees only its GPUs, and none if it has CPUs."""
    names = [device.key for device in devices if device.kind == "gpu"]
    return NVML_ORDER | {"CUDA_VISIBLE_DEVICES": ",".join(names)}
