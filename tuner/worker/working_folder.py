"""The folder in which a user's function works: what it writes by a relative path is its trial's own.

    RUN/files/<trial>/    what the trial wrote there, also in its earlier stays (working_folder="kept")

Where the run is on object storage, the folder is a temporary one, filled with what the trial has there, and copied back
before each report after which the trial may leave the worker, and when the function returns or fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import RunFolderError, describe_error
from tuner.history.checkpoints import upload
from tuner.history.trial_record import FILES
from tuner.machine.temporary import OwnedFolder
from tuner.storage.durable import make
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.locations import open_folder
from tuner.worker.assignment import Assignment


class Keeping:
    """Copies what a trial has written; files that lie in the run, or are temporary, need no copy."""

    def report(self, *, may_leave: bool) -> None:
        """Called before each report, with whether the trial may leave the worker with it."""


class _Copying(Keeping):
    def __init__(self, folder: Path, run: Folder, name: str) -> None:
        self._folder, self._run, self._name = folder, run, name
        self._copied = False  # since the last report

    def report(self, *, may_leave: bool) -> None:
        self._copied = may_leave
        if may_leave:
            self.copy()

    def leave(self) -> None:
        """The driver has ended the trial here: one that goes on elsewhere does so from what was copied before."""
        if not self._copied:
            self.copy()

    def copy(self) -> None:
        """Copy all files, in place of what is there; a failure is told in the trial's log."""
        files = sorted(path for path in self._folder.rglob("*") if path.is_file())
        try:
            upload(self._run, self._name, self._folder, files)
        except (OSError, ValueError, RunFolderError) as error:  # ValueError: a name that isn't UTF-8
            where = f"{self._run.uri}/{self._name}"
            print(f"files of the trial could not be kept in {where}: {describe_error(error)}", file=sys.stderr)


@contextmanager
def working_folder(assignment: Assignment) -> Iterator[Keeping]:
    """Work in the trial's folder inside the block, if its study has not said "shared".

    A file that isn't found there but is in the folder where the search was started is named with both ways to name it,
    in a FileNotFoundError.
    """
    if assignment.working_folder == "shared":
        yield Keeping()
        return
    started = Path.cwd()
    with _folder_of(assignment) as (own, keep):
        os.chdir(own)
        try:
            yield keep
        except FileNotFoundError as error:
            if (advice := _advice(error, started)) is None:
                raise
            raise FileNotFoundError(f"{error}; {advice}") from error
        finally:
            os.chdir(started)


@contextmanager
def _folder_of(assignment: Assignment) -> Iterator[tuple[Path, Keeping]]:
    run, name = open_folder(assignment.run_uri), f"{FILES}/{assignment.trial}"
    if assignment.working_folder == "kept" and isinstance(run, LocalFolder):
        folder = run.inside(name)
        make(folder)
        yield folder, Keeping()
        return
    with OwnedFolder("work") as owned:
        folder = owned / FILES
        folder.mkdir()
        if assignment.working_folder == "temporary":
            yield folder, Keeping()
            return
        if assignment.reported:
            with suppress(FileNotFoundError):  # it has none
                run.fetch(name, folder)
        copying = _Copying(folder, run, name)
        try:
            yield folder, copying
        except SystemExit:
            copying.leave()
            raise
        except BaseException:
            copying.copy()
            raise
        else:
            copying.copy()


def _advice(error: FileNotFoundError, started: Path) -> str | None:
    """What to do about a file that is in the folder where the search was started; None for any other one."""
    name = error.filename
    if not isinstance(name, str) or Path(name).is_absolute() or not (started / name).exists():
        return None
    return (
        "it is in the folder where the search was started, but a trial works in a folder of its own: write "
        f"Path({name!r}).absolute() outside of the function, or working_folder='shared' in the study"
    )
