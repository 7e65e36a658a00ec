"""Folders in the temporary directory; if their process dies, the next process deletes them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where results are read
    fcntl = None  # type: ignore[assignment]

PREFIX = "tuner-"
_OWNER = ".owner"  # locked by the kernel as long as the owner lives, in any container or boot


class OwnedFolder:
    """A folder that only this user can enter, deleted by `delete`, or by `sweep` of any process once this one is dead.

    Raises OSError if the temporary directory can't be written to.
    """

    def __init__(self, kind: str, *, within: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=within))
        self._lock = -1 if fcntl is None else _owned(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.delete()

    def delete(self) -> None:
        """Delete the folder and its content; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _owned(folder: Path) -> int:
    """The descriptor of a lock in the folder, which makes this process its owner."""
    unlocked = folder / f"{_OWNER}-new"
    lock = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
    with suppress(OSError):  # without locks in this file system no sweep can take the folder for a dead process's
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unlocked.rename(folder / _OWNER)  # so that a sweep only sees the file once it is locked
    return lock


def sweep(within: Path | None = None) -> list[Path]:
    """Delete this user's owned folders whose owners are dead; returns the deleted ones."""
    return [folder for folder in _owned_folders(within or Path(tempfile.gettempdir())) if _taken(folder, _delete)]


def abandoned(within: Path) -> list[Path]:
    """Owned folders of this user whose owners are dead; nothing is deleted."""
    return sorted(folder for folder in _owned_folders(within) if _taken(folder))


def _owned_folders(within: Path) -> list[Path]:
    """Owned folders of this user; none where there are no locks: then it isn't known which owners live."""
    with suppress(OSError):
        entries = [entry for entry in os.scandir(within) if fcntl is not None and entry.name.startswith(PREFIX)]
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False) and _is_ours(entry)]
    return []


def _is_ours(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _taken(folder: Path, then: Callable[[Path], None] = lambda folder: None) -> bool:
    """Whether its owner is dead; if so, `then` is done with the folder while nobody else can take it."""
    try:
        lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:  # not an owned folder, or just deleted
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its owner lives
        return False
    else:
        then(folder)
        return True
    finally:
        os.close(lock)
