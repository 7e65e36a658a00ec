"""The service's own folder in a storage folder; only one server at a time works on it."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import StudyError
from tuner.service import bundles

FOLDER = ".service"


class DataFolder:
    """`STORAGE/.service`: the database, bundles, drivers' files, and the lock.

    The kernel holds the lock and releases it when its process ends in any way.
    """

    def __init__(self, storage: str | Path) -> None:
        self.storage = Path(storage).expanduser().resolve()
        self.path = self.storage / FOLDER
        self.database = self.path / "service.sqlite3"
        self.bundles = self.path / "bundles"
        self.drivers = self.path / "drivers"
        self._lock: int | None = None

    def make(self) -> None:
        """Create the folders, readable by this user only. Raises StudyError if that fails."""
        try:
            for folder in (self.path, self.bundles, self.drivers):
                folder.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
        except OSError as error:
            raise StudyError(
                f"--storage needs a folder that can be written to, got {str(self.storage)!r} ({error.strerror}); "
                "choose another"
            ) from error

    def lock(self) -> None:
        """Hold the lock until `unlock` or the end of this process. Raises StudyError if another server has it."""
        self.make()
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 1000).decode(errors="replace")
            os.close(handle)
            raise StudyError(
                f"a storage folder has one server at a time, got {str(self.storage)!r}, which {_who(holder)} serves; "
                "end that one, or choose another --storage"
            ) from error
        told = {"pid": os.getpid(), "host": platform.node(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(told).encode(), 0)
        self._lock = handle

    def unlock(self) -> None:
        """Let another server work on it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def bundle(self, study: int) -> Path:
        """The folder with a study's file and its modules."""
        return self.bundles / str(study)

    def attempt(self, study: int, attempt: int) -> Path:
        """The folder with a driver's task and its reports."""
        return self.drivers / f"{study}-{attempt}"

    def forget(self, study: int, *, bundle: bool) -> None:
        """Delete the folders of its drivers, and its `bundle` unless a run imports from there."""
        for folder in self.drivers.glob(f"{study}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        if bundle:
            bundles.remove(self.bundle(study))

    @property
    def free_bytes(self) -> int:
        """Free bytes on the disk, for this user."""
        return shutil.disk_usage(self.path).free


def _who(holder: str) -> str:
    try:
        told = json.loads(holder)
        return f"process {int(told['pid'])} on {str(told['host'])!r} (since {told['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
