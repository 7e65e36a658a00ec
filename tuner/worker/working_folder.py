"""The folder in which a user's function works: what it writes by a relative path is its trial's own.

    RUN/files/<trial>/    what the trial wrote there, also in its earlier stays (working_folder="kept")

Where the run is on object storage, the folder is a temporary one, filled with what the trial has there, and copied back
when the trial leaves the worker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import RunFolderError, describe_error
from tuner.history.trial_record import FILES
from tuner.machine.temporary import OwnedFolder
from tuner.storage.durable import make
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.locations import open_folder
from tuner.worker.assignment import Assignment


@contextmanager
def working_folder(assignment: Assignment) -> Iterator[None]:
    """Work in the trial's folder inside the block, if its study has not said "shared".

    A file that isn't found there but is in the folder where the search was started is named with both ways to name it,
    in a FileNotFoundError.
    """
    if assignment.working_folder == "shared":
        yield
        return
    started = Path.cwd()
    with _folder_of(assignment) as own:
        os.chdir(own)
        try:
            yield
        except FileNotFoundError as error:
            raise _with_advice(error, started) from error
        finally:
            os.chdir(started)


@contextmanager
def _folder_of(assignment: Assignment) -> Iterator[Path]:
    run, name = open_folder(assignment.run_uri), f"{FILES}/{assignment.trial}"
    if assignment.working_folder == "kept" and isinstance(run, LocalFolder):
        folder = run.inside(name)
        make(folder)
        try:
            yield folder
        finally:
            with suppress(OSError):  # something is in it
                folder.rmdir()
        return
    with OwnedFolder("work") as owned:
        folder = owned / FILES
        folder.mkdir()
        if assignment.working_folder == "temporary":
            yield folder
            return
        if assignment.reported:
            with suppress(FileNotFoundError):  # it has none
                run.fetch(name, folder)
        try:
            yield folder
        finally:
            _upload(folder, run, name)


def _upload(folder: Path, run: Folder, name: str) -> None:
    """Copy all files to the run; what can't be copied is named in the trial's log."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            run.write(f"{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        except (OSError, RunFolderError) as error:
            print(f"{file.name} could not be kept in {run.uri}/{name}: {describe_error(error)}", file=sys.stderr)


def _with_advice(error: FileNotFoundError, started: Path) -> FileNotFoundError:
    """The same error, with what to do about a file that is in the folder where the search was started."""
    name = error.filename
    if not isinstance(name, str) or Path(name).is_absolute() or not (started / name).exists():
        return error
    return FileNotFoundError(
        f"{error}; it is in the folder where the search was started, but a trial works in a folder of its own: write "
        f"Path({name!r}).absolute() outside of the function, or working_folder='shared' in the study"
    )
