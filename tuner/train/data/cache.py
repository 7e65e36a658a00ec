"""Arrays on disk that all processes of a machine share through memory mapping, built once.

An entry is a folder: `NAME.npy` for each array, and `entry.json` with their sizes and checksums, written last. It is
built under another name and then renamed, under a lock that the kernel releases when a process dies. Its content is
read completely and compared with the checksums once per boot of each machine: `verified-BOOT` then names the files that
were correct.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from tuner.machine.cache_folder import default_folder
from tuner.storage import durable
from tuner.storage.regular_files import sha256

INDEX = "entry.json"
BUILDING = ".building-"
VERIFIED = "verified-"
BOOT = Path("/proc/sys/kernel/random/boot_id")
RESERVE_BYTES = 10**9  # left free on the disk
DAYS_KEPT = 30.0
SECONDS_PER_DAY = 86_400.0


class CacheUnavailable(Exception):  # noqa: N818 -- it names a state, which the caller deals with
    """There is no room for an entry, or no writable folder."""


@dataclass(frozen=True)
class Entry:
    """The content stored under a key.

    Attributes:
        arrays: by name, mapped copy-on-write: writing to one changes neither the file nor what others see
        facts: small plain data
        notes: what the user should know of how the entry was found, in sentences
    """

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()


class _Unfit(Exception):  # noqa: N818 -- a state too
    """An existing entry is damaged, or, if `unverified`, was not checked yet."""

    def __init__(self, reason: str, *, unverified: bool = False) -> None:
        super().__init__(reason)
        self.unverified = unverified


class Builder:
    """Takes the arrays of an entry while it is built."""

    def __init__(self, folder: Path) -> None:
        self.facts: dict[str, Any] = {}
        self._folder = folder
        self._names: list[str] = []

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
        """A new array on disk, to be filled piece by piece: it may be larger than memory.

        Raises:
            OSError: the disk has no room for all of it.
        """
        self._names.append(name)
        path = self._folder / f"{name}.npy"
        array = np.asarray(open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape))
        if hasattr(os, "posix_fallocate"):  # otherwise a full disk kills the process when the mapped array is filled
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array

    def put(self, name: str, array: np.ndarray) -> None:
        """Store a whole array."""
        self.array(name, array.shape, array.dtype)[...] = array

    def finish(self) -> None:
        """Write the index, with the files' sizes and checksums."""
        paths = {name: self._folder / f"{name}.npy" for name in self._names}
        index = {
            "bytes": {name: path.stat().st_size for name, path in paths.items()},
            "sha256": {name: sha256(path) for name, path in paths.items()},
            "facts": self.facts,
        }
        text = json.dumps(index | {"check": cache_key(index)})
        (self._folder / INDEX).write_text(text, encoding="utf-8")


def cache_key(*parts: object) -> str:
    """32 hexadecimal digits that depend on the parts, which must be JSON, and on their order."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class ArrayCache:
    """Entries by key under one folder; those that nobody used for 30 days are deleted when a new one is built."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def get(self, key: str, build: Callable[[Builder], None], *, expected_bytes: int = 0) -> Entry:
        """The entry; it is built first unless a complete one exists. Other processes that need it wait meanwhile.

        Args:
            key: from `cache_key`
            build: fills the entry; what it raises passes through, and nothing is kept
            expected_bytes: how much room the entry needs

        Raises:
            CacheUnavailable: there is no room, or the folder can't be written to.
        """
        try:
            return self._read(key)
        except _Unfit:
            pass  # checked again under the lock: another process may be building it
        with self._problems(), self._exclusive(key) as writable:
            notes: tuple[str, ...] = ()
            try:
                return self._verified(key)
            except _Unfit as unfit:
                if not writable:
                    raise CacheUnavailable(
                        f"a cache entry must be what was built, got {self.folder / key}: {unfit}; "
                        "set TUNER_CACHE to a folder that can be written to"
                    ) from unfit
                if (self.folder / key).exists():
                    notes = (f"{self.folder / key} in the cache is damaged and is built again: {unfit}",)
            self._build(key, build, expected_bytes)
            self.prune(keep=key)
            with suppress(_Unfit):
                return replace(self._verified(key), notes=notes)
        raise CacheUnavailable(
            f"a cache entry must stay as it was written, got another content in {self.folder / key}; "
            "set TUNER_CACHE to a folder on another disk"
        )

    def find(self, key: str) -> Entry | None:
        """The entry; None if there is none that is whole."""
        try:
            return self._verified(key)
        except _Unfit:
            return None

    def prune(self, max_age_days: float = DAYS_KEPT, keep: str | None = None) -> None:
        """Delete what nobody used for this long, and remains of builders that died more than a day ago.

        A process that has mapped an entry keeps it: the kernel frees the files when the mapping ends.
        """
        now = time.time()
        for path in self.folder.iterdir():
            with suppress(OSError):
                leftover = path.name.startswith(BUILDING)
                used = (path if leftover or path.is_file() else path / INDEX).stat().st_mtime
                age = (now - used) / SECONDS_PER_DAY
                if age > (1.0 if leftover else max_age_days) and path.stem != keep:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _read(self, key: str) -> Entry:
        """The entry. Raises _Unfit if it isn't complete, or wasn't checked since the machine was started."""
        folder = self.folder / key
        index = _read_index(folder)
        files = _identities(folder, index)
        if files not in (_FITTED.get(folder), _read_marker(folder)):
            raise _Unfit("it isn't verified yet", unverified=True)
        _FITTED[folder] = files
        return _mapped(folder, index)

    def _verified(self, key: str) -> Entry:
        """The entry, with all bytes compared with the checksums, once per boot. Raises _Unfit if it isn't whole."""
        try:
            return self._read(key)
        except _Unfit as unfit:
            if not unfit.unverified:
                raise
        folder = self.folder / key
        index = _read_index(folder)
        files = _identities(folder, index)  # before the content: files that change meanwhile are checked again
        _look_through(folder, index)
        _FITTED[folder] = files
        _write_marker(folder, files)
        return _mapped(folder, index)

    def _build(self, key: str, build: Callable[[Builder], None], expected_bytes: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if expected_bytes + RESERVE_BYTES > free and expected_bytes:
            raise CacheUnavailable(
                f"decoded images need {expected_bytes / 1e9:.1f} GB, got {free / 1e9:.1f} GB free in {self.folder}; "
                "make room, or set TUNER_CACHE to a folder that has it"
            )
        with tempfile.TemporaryDirectory(
            prefix=f"{BUILDING}{key}-", dir=self.folder, ignore_cleanup_errors=True
        ) as new:
            inside = Path(new) / key
            inside.mkdir()
            builder = Builder(inside)
            build(builder)
            builder.finish()
            shutil.rmtree(self.folder / key, ignore_errors=True)  # a damaged entry
            inside.rename(self.folder / key)

    @contextmanager
    def _exclusive(self, key: str) -> Iterator[bool]:
        """Lock the entry, among processes of all machines that share the folder; yields False if it is read-only."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / f"{key}.lock").open("w")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            if not (self.folder / key).is_dir():
                raise
            yield False
            return
        with file:
            yield True

    @contextmanager
    def _problems(self) -> Iterator[None]:
        """Raise CacheUnavailable instead of the disk's errors."""
        try:
            yield
        except OSError as error:
            inside = error.filename is None or str(error.filename).startswith(str(self.folder))
            if not inside:  # an error of the data's own files
                raise
            raise CacheUnavailable(
                f"decoded images need a folder to be kept in, got {self.folder}: {error.strerror}; "
                "make room, or set TUNER_CACHE to a folder that can be written to"
            ) from error


# What this process has checked, for read-only folders and systems without a boot id.
_FITTED: dict[Path, dict[str, Any]] = {}


def _read_index(folder: Path) -> dict[str, Any]:
    """The index of an entry. Raises _Unfit if there is none that is consistent."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if "check" not in index:
            raise _Unfit("it has no checksums")
        content = {name: value for name, value in index.items() if name != "check"}
        if index["check"] != cache_key(content) or not index["sha256"]:
            raise _Unfit(f"{INDEX} isn't what was written")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _Unfit(f"it has no whole {INDEX}") from error
    return dict(index)


def _identities(folder: Path, index: dict[str, Any]) -> dict[str, Any]:
    """Values that change with the files: inodes, sizes, times, the index's sum. Raises _Unfit if a file is missing."""
    found: dict[str, Any] = {INDEX: index["check"]}
    for name, size in index["bytes"].items():
        try:
            stat = (folder / f"{name}.npy").stat()
        except OSError as error:
            raise _Unfit(f"{name}.npy is missing") from error
        if stat.st_size != size:
            raise _Unfit(f"{name}.npy has {stat.st_size} bytes, not {size}")
        found[name] = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return found


def _mapped(folder: Path, index: dict[str, Any]) -> Entry:
    try:
        arrays = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="c")) for name in index["sha256"]}
    except (OSError, ValueError) as error:
        raise _Unfit(str(error)) from error
    with suppress(OSError):  # read-only: others have to prune it
        os.utime(folder / INDEX)
    return Entry(arrays, index["facts"])


def _look_through(folder: Path, index: dict[str, Any]) -> None:
    """Read all arrays. Raises _Unfit if one isn't as it was written."""
    for name, checksum in index["sha256"].items():
        try:
            fits = sha256(folder / f"{name}.npy") == checksum
        except OSError as error:
            raise _Unfit(f"{name}.npy can't be read: {error.strerror}") from error
        if not fits:
            raise _Unfit(f"{name}.npy isn't what was written")


def _marker(folder: Path) -> Path | None:
    """The file that lists the entries checked since this machine was started; None if the boot isn't known."""
    try:
        return folder / f"{VERIFIED}{BOOT.read_text(encoding='ascii').strip()}"
    except (OSError, ValueError):
        return None


def _read_marker(folder: Path) -> object:
    try:
        path = _marker(folder)
        return None if path is None else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _write_marker(folder: Path, files: dict[str, Any]) -> None:
    """Write it as a whole, for readers; without it the next process checks the entry again."""
    path = _marker(folder)
    with suppress(OSError):
        for old in folder.glob(f"{VERIFIED}*"):
            if time.time() - old.stat().st_mtime > DAYS_KEPT * SECONDS_PER_DAY:  # of an old boot
                old.unlink()
        if path is not None:
            durable.replace(path, json.dumps(files).encode())
