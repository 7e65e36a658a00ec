"""The checkpoints of a run, each complete or absent: all code writes, reads and deletes them through this module.

    checkpoints/<trial>/<epoch>/files/         what the trial saved, as it saved it
    checkpoints/<trial>/<epoch>/manifest.json  trial, epoch, size and sha256 of each file, and the trial's last reports

A worker writes a checkpoint next to its final place and moves it there as a whole; on an object store, which can't move
a folder, the manifest is written last. A checkpoint is verified against its manifest before anything goes on from it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.errors import RunFolderError, TrialError
from tuner.history.events import plain
from tuner.machine.temporary import OwnedFolder
from tuner.storage.durable import make
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.regular_files import mark

CHECKPOINTS = "checkpoints"
FILES = "files"
MANIFEST = "manifest.json"
_TRIAL = re.compile(r"[A-Za-z0-9_]+")
_UNFINISHED = ".unfinished-"

Fill = Callable[[Path], None]
Reports = Mapping[int, dict[str, Any]]  # metrics by epoch


def copied(source: Path) -> Fill:
    """What fills a folder with everything in another one; it raises OSError, and names only the first bad file."""

    def fill(target: Path) -> None:
        for path, _, _ in os.walk(source, followlinks=True):
            if os.path.realpath(path) in map(os.path.realpath, Path(path).parents):
                raise OSError(f"a link must not lead to a folder that it is in, got {path!r}; remove it")
        try:
            shutil.copytree(source, target, dirs_exist_ok=True)
        except shutil.Error as error:
            reasons = [reason for _, _, reason in error.args[0]]
            raise OSError(reasons[0] + (f", and {len(reasons) - 1} more" if reasons[1:] else "")) from error

    return fill


def checkpoint_path(trial: str, epoch: int) -> str:
    """The path in the run folder of a trial's checkpoint after an epoch.

    Raises ValueError for an id that tuner never gives to trials: it could lead outside.
    """
    if not _TRIAL.fullmatch(trial):
        raise ValueError(f"a trial's id has letters, digits and _ only, got {trial!r}")
    return f"{CHECKPOINTS}/{trial}/{epoch:06d}"


class CheckpointStore:
    """The checkpoints of one run folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def write(self, trial: str, epoch: int, fill: Fill, reports: Reports | None = None) -> None:
        """Store the files that `fill` writes into the folder it gets, instead of an older checkpoint of the epoch.

        The trial's last `reports` are kept in case that a power cut takes the events of them. Raises OSError if it
        can't be written; then nothing is left of it.
        """
        name = checkpoint_path(trial, epoch)
        if not isinstance(self._folder, LocalFolder):
            with OwnedFolder("checkpoint") as beside:
                _fill(beside, trial, epoch, fill, reports or {})
                upload(self._folder, name, beside, [*_files(beside / FILES), beside / MANIFEST])
            return
        part = f"{CHECKPOINTS}/{trial}/{_UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"
        beside = self._folder.inside(part)
        make(beside.parent)
        try:
            _fill(beside, trial, epoch, fill, reports or {})
            self._folder.rename(part, name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def epochs(self, trial: str) -> list[int]:
        """Epochs of which the trial has a checkpoint, in order; damage shows only when one is fetched."""
        inside = self._folder.child(f"{CHECKPOINTS}/{trial}")
        return sorted(int(name) for name in inside.folders() if name.isdigit() and inside.exists(f"{name}/{MANIFEST}"))

    def trials(self) -> list[str]:
        """The trials that have a folder here, sorted."""
        return [name for name in self._folder.child(CHECKPOINTS).folders() if _TRIAL.fullmatch(name)]

    def has(self, trial: str, epoch: int) -> bool:
        """Whether the trial has a checkpoint of this epoch."""
        return self._folder.exists(f"{checkpoint_path(trial, epoch)}/{MANIFEST}")

    def size(self, trial: str, epoch: int) -> int:
        """Bytes of a checkpoint's files and its manifest; 0 if it doesn't exist, or its manifest can't be read."""
        try:
            content = self._folder.read(f"{checkpoint_path(trial, epoch)}/{MANIFEST}")
            return len(content) + sum(int(mark["bytes"]) for mark in json.loads(content)["files"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return 0

    def fetch(self, trial: str, epoch: int, target: Path) -> Path:
        """A folder on this machine with the trial's files of that epoch, verified; if necessary a copy under `target`.

        Raises:
            TrialError: there is no checkpoint, or it is cut off or changed.
        """
        name = checkpoint_path(trial, epoch)
        try:
            files = json.loads(self._folder.read(f"{name}/{MANIFEST}"))["files"]
            folder = self._folder.fetch(f"{name}/{FILES}", target)
            whole = _marks(folder) == files
        except (OSError, ValueError, KeyError, TypeError, RunFolderError) as error:
            raise TrialError(f"a checkpoint must be complete, got {name}, which can't be read ({error})") from error
        if not whole:
            raise TrialError(f"a checkpoint must be complete, got {name}, which was cut off or changed")
        return folder

    def reports(self, trial: str, epoch: int) -> Reports | None:
        """The metrics by epoch that a checkpoint has, none in those of older versions; None unless it is complete."""
        try:
            with OwnedFolder("checkpoint") as beside:
                self.fetch(trial, epoch, beside / FILES)
            manifest = json.loads(self._folder.read(f"{checkpoint_path(trial, epoch)}/{MANIFEST}"))
            return {int(each): dict(metrics) for each, metrics in manifest.get("reports", {}).items()}
        except (TrialError, OSError, ValueError, TypeError, AttributeError):
            return None

    def delete(self, trial: str, epoch: int) -> None:
        """Delete a checkpoint if it exists; its manifest first, so that who reads it now sees that it is gone."""
        with suppress(OSError):  # of a folder that can't be written, as the next line does
            self._folder.remove(f"{checkpoint_path(trial, epoch)}/{MANIFEST}")
        self._folder.delete(checkpoint_path(trial, epoch))

    def sweep(self, trial: str) -> None:
        """Delete unfinished files of a worker that died; only while no worker runs the trial."""
        inside = self._folder.child(f"{CHECKPOINTS}/{trial}")
        for name in inside.folders():
            if name.startswith(_UNFINISHED) or (name.isdigit() and not inside.exists(f"{name}/{MANIFEST}")):
                inside.delete(name)


def upload(run: Folder, name: str, folder: Path, files: Iterable[Path]) -> None:
    """Copy `files` of a local `folder`, one after another, to the run's folder `name`, in place of what is there."""
    run.delete(name)
    for file in files:
        run.write(f"{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())


def _fill(folder: Path, trial: str, epoch: int, fill: Fill, reports: Reports) -> None:
    (folder / FILES).mkdir(parents=True)
    fill(folder / FILES)
    manifest = {"trial": trial, "epoch": epoch, "files": _marks(folder / FILES), "reports": reports}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, default=plain), encoding="utf-8")


def _marks(folder: Path) -> dict[str, Any]:
    """Size and sha256 of each file below the folder, by its path there."""
    return {path.relative_to(folder).as_posix(): mark(path) for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
