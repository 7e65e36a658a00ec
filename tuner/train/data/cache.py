"""Arrays on disk that all processes of a machine share through memory mapping, built once.

An entry is a folder: `NAME.npy` for each array, and `entry.json`, written last. It is built beside and moved into
place, under a lock that the kernel gives back when a process dies.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

INDEX = "entry.json"
BUILDING = ".building-"
RESERVE_BYTES = 10**9  # left free on the disk
DAYS_KEPT = 30.0
SECONDS_PER_DAY = 86_400.0


class CacheUnavailable(Exception):  # noqa: N818 -- it names a state, which the caller deals with
    """There is no room for an entry, or no folder that can be written to."""


@dataclass(frozen=True)
class Entry:
    """What a key stands for.

    Attributes:
        arrays: by name, mapped copy-on-write: writing to one changes neither the file nor what others see
        facts: small plain data
    """

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


class Builder:
    """Takes the arrays of an entry while it is built."""

    def __init__(self, folder: Path) -> None:
        self.facts: dict[str, Any] = {}
        self._folder = folder
        self._names: list[str] = []

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
        """A new array on disk, to be filled piece by piece: it may be larger than memory."""
        self._names.append(name)
        return np.asarray(open_memmap(self._folder / f"{name}.npy", mode="w+", dtype=np.dtype(dtype), shape=shape))

    def put(self, name: str, array: np.ndarray) -> None:
        """A whole array."""
        self.array(name, array.shape, array.dtype)[...] = array

    def finish(self) -> None:
        """Write the index."""
        sizes = {name: (self._folder / f"{name}.npy").stat().st_size for name in self._names}
        (self._folder / INDEX).write_text(json.dumps({"bytes": sizes, "facts": self.facts}), encoding="utf-8")


def default_folder() -> Path:
    """$TUNER_CACHE, else `tuner` in the user's cache folder."""
    if folder := os.environ.get("TUNER_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tuner"


def cache_key(*parts: object) -> str:
    """32 hexadecimal digits that depend on the parts, which must be JSON, and on their order."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class ArrayCache:
    """Entries by key under one folder; those that nobody used for 30 days are deleted when a new one is built."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def get(self, key: str, build: Callable[[Builder], None], *, expected_bytes: int = 0) -> Entry:
        """The entry, built first unless it is there whole; other processes that want it meanwhile wait for it.

        Args:
            key: from `cache_key`
            build: fills the entry; what it raises passes through, and nothing is kept
            expected_bytes: how much room the entry needs

        Raises:
            CacheUnavailable: there is no room, or the folder can't be written to.
        """
        if entry := self._read(key):
            return entry
        with self._problems(), self._locked(key):
            if entry := self._read(key):  # built while this process waited
                return entry
            self._build(key, build, expected_bytes)
            self.prune(keep=key)
            if entry := self._read(key):
                return entry
        raise CacheUnavailable(f"a cache entry must stay where it was written, got none in {self.folder}; try again")

    def prune(self, max_age_days: float = DAYS_KEPT, keep: str | None = None) -> None:
        """Delete what nobody used for so long, and what builders left that died more than a day ago.

        A process that has an entry mapped keeps it: the kernel frees the files when it lets go.
        """
        now = time.time()
        for path in self.folder.iterdir():
            with suppress(OSError):
                leftover = path.name.startswith(BUILDING)
                used = (path if leftover or path.is_file() else path / INDEX).stat().st_mtime
                age = (now - used) / SECONDS_PER_DAY
                if age > (1.0 if leftover else max_age_days) and path.stem != keep:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _read(self, key: str) -> Entry | None:
        folder = self.folder / key
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            if any((folder / f"{name}.npy").stat().st_size != size for name, size in index["bytes"].items()):
                return None
            arrays = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="c")) for name in index["bytes"]}
            os.utime(folder / INDEX)
            return Entry(arrays, index["facts"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

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
            shutil.rmtree(self.folder / key, ignore_errors=True)  # a damaged one
            inside.rename(self.folder / key)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{key}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _problems(self) -> Iterator[None]:
        """Raise CacheUnavailable in place of what the disk says."""
        try:
            yield
        except OSError as error:
            inside = error.filename is None or str(error.filename).startswith(str(self.folder))
            if not inside:  # of the data's own files
                raise
            raise CacheUnavailable(
                f"decoded images need a folder to be kept in, got {self.folder}: {error.strerror}; "
                "make room, or set TUNER_CACHE to a folder that can be written to"
            ) from error
