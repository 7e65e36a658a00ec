"""Copies objects of a store into this machine's cache once: complete or absent, resumable, one process at a time.

    CACHE/objects/URI'S KEY/VERSION/files/…        what was copied, never changed afterwards
                           /VERSION/manifest.json  names, sizes and ETags; a version is a digest of these
                           /.partial-VERSION/      a download that goes on; renamed when it is whole
                           /current                the version that was copied last
    CACHE/objects/URI'S KEY.lock                   held while somebody copies; the kernel frees it after a kill

Objects that another version already has are hard links to its files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any
from urllib.parse import unquote

from tuner.machine.cache_folder import default_folder
from tuner.storage.bucket import Bucket, Stored, StoreProblem
from tuner.storage.durable import replace
from tuner.storage.locations import no_space

FOLDER, MANIFEST, CURRENT, PARTIAL = "objects", "manifest.json", "current", ".partial-"
FILES, PARTS = "files", "parts"
THREADS = 16
PIECE_BYTES = 4 * 2**20
RESERVE_BYTES = 10**9  # left free on the disk, as for decoded images
DAYS_KEPT = 30.0
SECONDS_PER_DAY = 86_400.0
MOST_BYTES_OF_A_NAME = 255
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


@dataclass(frozen=True)
class Listing:
    """The objects under a URI at one moment.

    Attributes:
        uri: of a prefix, or of one object
        objects: those that are wanted, sorted by name, a table first
        others: names of objects that aren't wanted
        alone: whether the URI is that of the only object
        prefix: the URI to which names are relative, if it is another one
        images: how many of the objects are images that are read; None for weights
        classes: how many classes these have
    """

    uri: str
    objects: tuple[Stored, ...]
    others: tuple[str, ...] = ()
    alone: bool = False
    prefix: str | None = None
    images: int | None = None
    classes: int | None = None

    @property
    def version(self) -> str:
        """16 hexadecimal digits that change with names, sizes and ETags of the objects."""
        rows = [[one.name, one.size, one.etag] for one in self.objects]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]

    @property
    def bytes(self) -> int:
        """Of all objects."""
        return sum(one.size for one in self.objects)


@dataclass(frozen=True)
class Copy:
    """Where this machine keeps a version of a URI's objects; without a version, the one that was copied last."""

    uri: str
    version: str | None = None

    @property
    def base(self) -> Path:
        """The folder of all versions; the URI may hold a password, so its name is a digest."""
        return default_folder() / FOLDER / hashlib.sha256(self.uri.encode()).hexdigest()[:32]

    @property
    def settled(self) -> Copy:
        """The copy with its version, if one is known."""
        if self.version is not None:
            return self
        with suppress(OSError):
            return Copy(self.uri, (self.base / CURRENT).read_text(encoding="ascii").strip() or None)
        return self

    @property
    def folder(self) -> Path:
        """The version's folder."""
        return self.base / (self.settled.version or "none")

    @property
    def files(self) -> Path:
        """The folder of the objects."""
        return self.folder / FILES

    @property
    def file(self) -> Path:
        """The file of the object that the URI names, if it names one."""
        return self.files / PurePosixPath(unquote(self.uri.partition("?")[0])).name

    @property
    def is_present(self) -> bool:
        """Whether the copy exists and is complete."""
        return (self.folder / MANIFEST).is_file()

    @property
    def is_whole(self) -> bool:
        """Whether all files have the right size: somebody may have deleted some, or the machine may have crashed."""
        rows = _manifest(self.folder).get("objects")
        return rows is not None and all(_has_size(self.files / row["name"], Stored(**row)) for row in rows)

    @property
    def others(self) -> tuple[str, ...]:
        """Names of other objects there, which weren't wanted."""
        return tuple(_manifest(self.folder).get("others", ()))


def listed(uri: str, wanted: Callable[[str], bool], below: str = "") -> Listing:
    """What is below a URI, and a further prefix after it, now; names are relative to the URI.

    Raises StoreProblem as Bucket does, and for a name that no file can have.
    """
    rows = Bucket(uri).objects(below)
    objects = tuple(one for one in rows if wanted(one.name))
    for one in objects:
        _check_name(one.name)
    return Listing(uri, objects, tuple(one.name for one in rows if not wanted(one.name)))


def listed_alone(uri: str) -> Listing:
    """The one object at a URI; raises StoreProblem as Bucket does."""
    return Listing(uri, (Bucket(uri).object(),), alone=True)


def content(listing: Listing) -> bytes:
    """The content of the one object of a listing, which isn't copied; raises StoreProblem as Bucket does."""
    return b"".join(_pieces(Bucket(listing.uri), listing.objects[0], 0, alone=True))


def check_room(listing: Listing) -> None:
    """Raise StoreProblem if this machine's cache has no room for the missing objects."""
    copy = Copy(listing.uri, listing.version)
    if not copy.is_present:
        there = sum(path.stat().st_size for path in _files_of(copy.base / f"{PARTIAL}{listing.version}"))
        _check_free(copy.base, listing.bytes - there)


def fetch(listing: Listing) -> Copy:
    """Copy everything that isn't copied yet; other processes that need it meanwhile wait.

    Raises StoreProblem if reading from the store or writing to the cache fails; copied files stay for the next try.
    """
    copy = Copy(listing.uri, listing.version)
    try:
        with _alone(copy.base):
            if not copy.is_whole:
                _Download(listing, copy).perform()
                _prune(copy.base.parent, keep=copy)
            replace(copy.base / CURRENT, listing.version.encode())
            with suppress(OSError):
                os.utime(copy.folder / MANIFEST)
    except OSError as error:
        where = copy.base.parent
        if no_space(error):
            raise _no_room(where, listing.bytes) from error
        raise StoreProblem(
            f"{where} can't be written to ({error.strerror or error})",
            "set TUNER_CACHE to a folder that can be written to",
        ) from error
    return copy


class _Download:
    """One process that downloads one version."""

    def __init__(self, listing: Listing, copy: Copy) -> None:
        self._listing, self._copy = listing, copy
        self._building = copy.base / f"{PARTIAL}{listing.version}"
        self._bucket = Bucket(listing.prefix or listing.uri)
        self._stop = Event()
        self._etags_are_sums = True

    def perform(self) -> None:
        if self._copy.folder.exists():  # damaged: begin with what is left of it
            self._copy.folder.rename(self._building)
        for folder in (FILES, PARTS):
            (self._building / folder).mkdir(parents=True, exist_ok=True)
        (self._building / MANIFEST).unlink(missing_ok=True)
        missing = [one for one in self._listing.objects if not self._is_there(one)]
        missing = [one for one in missing if not self._linked(one)]
        _check_free(self._building, sum(one.size - self._begun(one) for one in missing))
        with ThreadPoolExecutor(THREADS) as threads:
            try:
                for _ in threads.map(self._get, missing):
                    pass
            except BaseException:
                self._stop.set()
                threads.shutdown(cancel_futures=True)
                raise
        self._finish()

    def _finish(self) -> None:
        shutil.rmtree(self._building / PARTS, ignore_errors=True)
        told = {"objects": [asdict(one) for one in self._listing.objects], "others": self._listing.others}
        replace(self._building / MANIFEST, json.dumps(told).encode())
        self._building.rename(self._copy.folder)

    def _target(self, one: Stored) -> Path:
        return self._building / FILES / one.name

    def _part(self, one: Stored) -> Path:
        return self._building / PARTS / hashlib.sha256(one.name.encode()).hexdigest()[:32]

    def _begun(self, one: Stored) -> int:
        path = self._part(one)
        return path.stat().st_size if path.exists() else 0

    def _is_there(self, one: Stored) -> bool:
        """Whether an earlier try copied it, by size and, if possible, checksum: the machine may have crashed."""
        path = self._target(one)
        return _has_size(path, one) and self._fits(path, one)

    def _linked(self, one: Stored) -> bool:
        """Whether another version has the same object, and it could be linked from there."""
        for earlier in self._earlier(one):
            with suppress(OSError):
                if not self._fits(earlier, one):
                    continue
                self._target(one).parent.mkdir(parents=True, exist_ok=True)
                self._target(one).unlink(missing_ok=True)
                os.link(earlier, self._target(one))
                return True
        return False

    def _earlier(self, one: Stored) -> Iterator[Path]:
        if one.etag is None:
            return
        for folder, known in self._known.items():
            if one in known and _has_size(folder / FILES / one.name, one):
                yield folder / FILES / one.name

    @cached_property
    def _known(self) -> dict[Path, set[Stored]]:
        """The objects of other versions, by their folders."""
        return {
            path: {Stored(**row) for row in _manifest(path).get("objects", ())}
            for path in self._copy.base.iterdir()
            if path.is_dir() and not path.name.startswith(PARTIAL)
        }

    def _get(self, one: Stored) -> None:
        """Get one object; the same wrong checksum twice shows that this store's ETags aren't checksums."""
        sums: list[str] = []
        while not self._stop.is_set():
            part = self._part(one)
            self._fill(part, one)
            if self._stop.is_set():
                return
            if self._fits(part, one):
                break
            sums.append(_md5(part))
            if len(sums) > 1 and sums[0] == sums[1]:
                self._etags_are_sums = False
                break
            part.unlink()
            if len(sums) > 1:
                raise StoreProblem(f"{one.name!r} came with another content each time", "check network and disk")
        target = self._target(one)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._part(one).replace(target)

    def _fill(self, part: Path, one: Stored) -> None:
        """Read the missing part of an object, piece by piece: a killed process only loses the last piece."""
        with part.open("ab") as file:
            start = file.tell()
            if start > one.size:
                file.truncate(0)
                start = 0
            for piece in _pieces(self._bucket, one, start, alone=self._listing.alone):
                file.write(piece)
                file.flush()
                if self._stop.is_set():
                    return

    def _fits(self, path: Path, one: Stored) -> bool:
        """Whether the content matches the ETag, if that can be an MD5; multipart uploads have other ETags."""
        found = _MD5.fullmatch(one.etag or "")
        return not (found and self._etags_are_sums) or _md5(path) == found[1]


def _pieces(bucket: Bucket, one: Stored, start: int, *, alone: bool) -> Iterator[bytes]:
    """An object from byte `start` on."""
    for begin in range(start, one.size, PIECE_BYTES):
        end = min(begin + PIECE_BYTES, one.size)
        piece = bucket.read(one, begin, end, alone=alone)
        if len(piece) != end - begin:
            raise StoreProblem(f"{one.name!r} is shorter than the store says", "start again")
        yield piece


def _has_size(path: Path, one: Stored) -> bool:
    try:
        return path.stat().st_size == one.size
    except OSError:
        return False


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _check_name(name: str) -> None:
    parts = name.split("/")
    bad = any(part in ("", ".", "..") or len(part.encode()) > MOST_BYTES_OF_A_NAME for part in parts)
    if bad or "\0" in name or "\\" in name:
        raise StoreProblem(f"an object's name must be one that a file can have, got {name!r}", "rename the object")


def _check_free(folder: Path, needed: int) -> None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if needed > 0 and needed + RESERVE_BYTES > free:
        raise _no_room(folder.parent, needed, free)


def _no_room(folder: Path, needed: int, free: int | None = None) -> StoreProblem:
    have = "the disk is full" if free is None else f"{free / 1e9:.1f} GB are free"
    keep = f" and {RESERVE_BYTES / 1e9:.0f} GB stays free" if free is not None else ""
    return StoreProblem(
        f"a copy takes {needed / 1e9:.1f} GB in {folder}{keep}, where {have}",
        "make room, or set TUNER_CACHE to a folder that has it",
    )


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Lets one process work at a time, among all machines that share the cache."""
    import fcntl  # missing on Windows, where results can be read

    base.mkdir(parents=True, exist_ok=True)
    with base.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _files_of(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _prune(objects: Path, keep: Copy) -> None:
    """Delete versions, and remains of downloads, that nobody used for 30 days."""
    for path in objects.glob("*/*"):
        with suppress(OSError):
            used = (path / MANIFEST if (path / MANIFEST).exists() else path).stat().st_mtime
            if path.is_dir() and path != keep.folder and time.time() - used > DAYS_KEPT * SECONDS_PER_DAY:
                shutil.rmtree(path)
