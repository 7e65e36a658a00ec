"""Runs in folders: one by its path, or all below a storage folder; and what a trial of one prints while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import RunFolderError
from tuner.history.events import EVENTS, EventFollower
from tuner.history.logs import LogFollower
from tuner.history.records import RunRecord
from tuner.history.run_info import RUN_FILE
from tuner.results.run import RecordedRun
from tuner.storage.folder import Folder
from tuner.storage.locations import open_folder

POLL_SECONDS = 0.5


def load_run(path: str | Path = "runs") -> RecordedRun:
    """The run at a folder or URI, or the newest run under a storage folder.

    Raises RunFolderError if there is none, or if a newer version of tuner wrote it.
    """
    folder = open_folder(path)
    try:
        is_run = folder.exists(RUN_FILE)
    except OSError as error:
        raise RunFolderError(
            f"a run is a folder that can be read, got {str(path)!r} ({error.strerror or error}); check its permissions"
        ) from error
    if is_run:
        return RecordedRun(folder)
    if not (runs := find_runs(path)):
        known = "" if str(path) == "runs" else "; `python -m tuner runs` lists all runs"
        raise RunFolderError(
            f"a run is a folder with {RUN_FILE}, got {str(path)!r}, with none in it or below it{known}"
        )
    return runs[0]


def find_runs(storage: str | Path) -> list[RecordedRun]:
    """The readable runs under a storage folder (or under one study's folder in it), newest first."""
    return survey(storage)[0]


def survey(storage: str | Path) -> tuple[list[RecordedRun], list[str]]:
    """The readable runs under a storage folder as in `find_runs`, and for each other one why it can't be read."""
    runs: list[RecordedRun] = []
    refused: list[str] = []
    children = _children(open_folder(storage), refused)
    for folder in [*children, *(inner for child in children for inner in _children(child, refused))]:
        try:
            runs.append(RecordedRun(folder))
        except RunFolderError as error:
            if _was_a_run(folder):
                refused.append(str(error))
    return sorted(runs, key=lambda run: str(run.info["started"]), reverse=True), refused


def _children(folder: Folder, refused: list[str]) -> list[Folder]:
    try:
        return [folder.child(name) for name in folder.folders() if not name.startswith(".")]  # .service isn't a study's
    except OSError as error:
        refused.append(f"a storage folder needs to be readable, got {folder.uri!r} ({error.strerror or error})")
        return []


def _was_a_run(folder: Folder) -> bool:
    try:
        return folder.exists(RUN_FILE) or EVENTS in folder.folders()
    except OSError:
        return True


def follow_log(run: RecordedRun, trial: str) -> Iterator[str]:
    """The last lines of the trial's log, then new lines, until the trial has ended or the run has no driver."""
    log, events, over = LogFollower(run.folder, trial), EventFollower(run.folder), False
    record = RunRecord(run.metric, run.mode)
    while not over:
        alive = load_run(run.path).alive  # checked before the last events and lines are read
        for event in events.new():
            record.apply(event)
        over = not (alive and record.trials[trial].live)
        yield log.new()
        time.sleep(0 if over else POLL_SECONDS)
    yield log.rest()
