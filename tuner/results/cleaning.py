"""The disk space of runs, part by part, and deleting the chosen parts.

Runs on which a driver works are not changed: a run's lease is held while it is cleaned. Symbolic links are deleted,
never followed. Before checkpoints are deleted, the run's events record it, so that `show`, `report` and `resume` know
it: an unfinished trial then starts again from its beginning.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from tuner.errors import RunFolderError
from tuner.history.checkpoints import CHECKPOINTS, CheckpointStore
from tuner.history.events import EventLog
from tuner.history.run_info import RUN_FILE
from tuner.history.scored import BEST, FRONT
from tuner.history.trial_record import FILES
from tuner.machine.cache_folder import default_folder
from tuner.machine.temporary import abandoned
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run, survey
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.lease import LEASE, held
from tuner.storage.locations import no_space, open_folder
from tuner.storage.sizes import path_bytes

Part = Literal["best", "front", "checkpoints", "files", "logs", "wandb", "ray", "other"]
PARTS: dict[Part, str] = {
    "best": BEST,
    "front": FRONT,
    "checkpoints": CHECKPOINTS,
    "files": FILES,
    "logs": "logs",
    "wandb": "wandb",
    "ray": "tune",
}
DELETABLE: tuple[Part, ...] = ("checkpoints", "files", "logs", "wandb", "ray")
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # where sessions of Ray may be, see tuner/driver/local_ray.py
SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}


@dataclass(frozen=True)
class Holding:
    """The disk space of one run: bytes by part; "other" is events, tables, report and the like."""

    run: RecordedRun
    parts: dict[Part, int]

    @property
    def total(self) -> int:
        """All bytes of the run folder."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Request:
    """What to delete from each run.

    Attributes:
        parts: of `DELETABLE`
        whole: the run itself, with everything in it
        keep_best: leave the checkpoint of the winner's best epoch
        older_seconds: leave runs that changed within this time; None for no limit
    """

    parts: Sequence[Part] = ()
    whole: bool = False
    keep_best: bool = False
    older_seconds: float | None = None

    def applies(self, run: RecordedRun) -> bool:
        """Whether the run is old enough, and no driver works on it."""
        old = self.older_seconds is None or time.time() - last_change(run) > self.older_seconds
        return old and not run.alive


def chosen_runs(paths: Sequence[str], storage: str) -> tuple[list[RecordedRun], list[str]]:
    """The runs at these paths, or all under a storage folder, newest first; and what is left out, in sentences.

    Links are left out: they lead to runs elsewhere. Raises RunFolderError for a path that is a link, or not a run's.
    """
    for path in filter(lambda path: Path(path).is_symlink(), paths):
        raise RunFolderError(f"clean needs a run's own folder, got the link {path!r}; name the folder that it leads to")
    if paths:
        return list({run.path: run for run in map(load_run, paths)}.values()), []
    runs, refused = survey(storage)
    base = open_folder(storage)
    own = [run for run in runs if run.path.startswith(base.uri.rstrip("/") + "/")]
    outside = [f"{run.path} lies outside of {storage}, and only a link leads to it" for run in runs if run not in own]
    return own, refused + outside


def holding(run: RecordedRun) -> Holding:
    """The disk space that a run uses now."""
    parts = {part: run.folder.held_bytes(name) if name in _inside(run.folder) else 0 for part, name in PARTS.items()}
    return Holding(run, parts | {"other": run.folder.held_bytes(without=tuple(PARTS.values()))})


def last_change(run: RecordedRun) -> float:
    """When the run changed last, in seconds since 1970."""
    told = (run.info.get(name) for name in ("ended", "updated", "started"))
    for text in filter(None, told):
        with suppress(ValueError):
            return datetime.fromisoformat(str(text)).timestamp()
    return 0.0


def clean(run: RecordedRun, request: Request) -> int:
    """Delete the chosen parts of a run; returns the bytes that were freed.

    Raises RunFolderError if a driver works on the run, or its folder can't be changed.
    """
    if run.alive:
        raise RunFolderError(f"clean leaves runs alone that a driver works on, got {run.path!r}; end the search first")
    before = run.folder.held_bytes()
    try:
        with held(run.folder):
            _delete(run, request)
    except (RunFolderError, OSError) as error:
        if not no_space(error):
            raise
        _delete(run, request, telling=False)  # there is no room for a lease or an event, so no driver can begin either
    return max(0, before - run.folder.held_bytes())


def would_free(found: Holding, request: Request) -> int:
    """Bytes that `clean` would free."""
    if request.whole:
        return found.total
    freed = sum(found.parts[part] for part in request.parts)
    if request.keep_best and "checkpoints" in request.parts:
        place = _winners_place(found.run)
        freed -= 0 if place is None else CheckpointStore(found.run.folder).size(*place)
    return max(0, freed)


def parse_age(text: str) -> float:
    """Seconds of an age such as 90m, 12h, 30d or 2w. Raises ValueError with rule and value."""
    number, unit = text[:-1], text[-1:]
    try:
        count = float(number)
    except ValueError:
        count = -1.0
    if unit not in SECONDS or not 0 <= count < 1e6:
        raise ValueError(f"needs a number with m, h, d or w, as in 12h or 30d, got {text!r}")
    return count * SECONDS[unit]


# Inside


def _delete(run: RecordedRun, request: Request, *, telling: bool = True) -> None:
    if request.whole:
        _delete_run(run.folder)
        return
    for part in request.parts:
        if part == "checkpoints":
            _delete_checkpoints(RecordedRun(run.folder), keep_best=request.keep_best, telling=telling)
        else:
            run.folder.delete(PARTS[part])


def _inside(folder: Folder) -> Collection[str]:
    """Names of the folders in it, without links to folders."""
    if not isinstance(folder, LocalFolder):
        return folder.folders()
    return [name for name in folder.folders() if not (folder.path / name).is_symlink()]


def _winners_place(run: RecordedRun) -> tuple[str, int] | None:
    """Trial and epoch of the winner's checkpoint; None if the run has none."""
    best = run.best
    found = best and run.record.best_of(best.trial)
    if best is None or not found:
        return None
    epoch = found[0] if found[0] in best.checkpoints else best.last_checkpoint
    return (best.trial, epoch) if epoch else None


def _delete_checkpoints(run: RecordedRun, *, keep_best: bool, telling: bool) -> None:
    """Write the events first, so that they also know the deletion if the process is killed in between."""
    kept = _winners_place(run) if keep_best else None
    store, known = CheckpointStore(run.folder), run.record.trials
    found = [(trial, epoch) for trial in store.trials() for epoch in store.epochs(trial) if (trial, epoch) != kept]
    if telling and found:
        log = EventLog(run.folder)
        try:
            for trial, epoch in found:
                if trial in known and epoch in known[trial].checkpoints:
                    log.append("checkpoint_deleted", trial=trial, epoch=epoch)
        finally:
            log.close()
    for trial, epoch in found:
        store.delete(trial, epoch)
    for trial in store.trials():
        store.sweep(trial)
    if kept is None:
        run.folder.delete(CHECKPOINTS)


def _delete_run(folder: Folder) -> None:
    """run.json goes last, so that the rest of a run whose deletion was interrupted is still found as a run."""
    for name in folder.folders():
        if name != LEASE:
            _delete_entry(folder, name)
    for name in folder.files():
        if name != RUN_FILE:
            folder.remove(name)
    folder.remove(RUN_FILE)
    if isinstance(folder, LocalFolder):
        shutil.rmtree(folder.path, ignore_errors=True)
        with suppress(OSError):  # if it was not the study's last run
            folder.path.parent.rmdir()
    else:
        folder.delete(LEASE)


def _delete_entry(folder: Folder, name: str) -> None:
    """Delete a folder with its content; of a link only the link."""
    path = folder.path / name if isinstance(folder, LocalFolder) else None
    if path is not None and path.is_symlink():
        path.unlink()
    else:
        folder.delete(name)


# Other files than runs


def sessions() -> list[Path]:
    """Folders in the temporary directories that dead searches left behind: sessions of Ray, and unfinished files."""
    return [path for folder in dict.fromkeys((tempfile.gettempdir(), *TEMPORARY)) for path in abandoned(Path(folder))]


def cache_entries(older_seconds: float | None = None) -> list[Path]:
    """Entries of tuner's cache that were not used for this long."""
    folder = default_folder()
    if folder.is_symlink() or not folder.is_dir():
        return []
    now = time.time()
    return [path for path in sorted(folder.iterdir()) if older_seconds is None or now - _used(path) > older_seconds]


def size_of(paths: Iterable[Path]) -> int:
    """The bytes of all paths together."""
    return sum(map(path_bytes, paths))


def delete_paths(paths: Iterable[Path]) -> int:
    """Delete files, folders, and links themselves; returns the bytes that were freed."""
    freed = 0
    for path in paths:
        size = path_bytes(path)
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            freed += size
    return freed


def _used(path: Path) -> float:
    """When an entry of the cache was last used, which is the time of its index."""
    for each in (path / "entry.json", path):
        with suppress(OSError):
            return each.lstat().st_mtime
    return 0.0
