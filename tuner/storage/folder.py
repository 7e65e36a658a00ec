"""The folder of a run: on a disk, or on an object store (object_folder.py), with the same few methods."""

from __future__ import annotations

import errno
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import IO

from tuner.errors import RunFolderError
from tuner.storage.durable import linked, make, replace, set_aside, sync, sync_all, written_beside
from tuner.storage.regular_files import regular_file
from tuner.storage.sizes import Disk, disk_of, path_bytes

LARGEST_BYTES = 2**30  # of a file that is read as a whole
MARK = "run.json"  # a folder with this file is a run's: nothing in it may lead outside


class Folder(ABC):
    """A folder of named files; names are relative, with forward slashes.

    Every method raises RunFolderError for a name that leads out of the folder: `..`, an absolute path, or on a disk a
    symbolic link in the path. Anybody may have put anything there: reading raises OSError for what is no regular file,
    such as a pipe, which would block the reader, and for more than LARGEST_BYTES.
    """

    uri: str

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.uri.rstrip("/").rsplit("/", 1)[-1]

    @abstractmethod
    def child(self, name: str) -> Folder:
        """The folder `name` inside this one, which need not exist; in a storage folder it may be a symbolic link."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The file's content; raises FileNotFoundError."""

    def read_from(self, name: str, start: int) -> bytes:
        """The file's content after its first `start` bytes; raises FileNotFoundError."""
        return self.read(name)[start:]

    @abstractmethod
    def read_at_most(self, name: str, most: int) -> bytes:
        """The first `most` bytes of a file; raises OSError also for a symbolic link."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Replace the file as a whole: a reader, also after a power cut, sees the old content or the new one."""

    def write_text(self, name: str, text: str) -> None:
        """`write` in UTF-8; lone surrogates, as in odd file names, have no UTF-8 and are written as escapes."""
        self.write(name, text.encode("utf-8", "backslashreplace"))

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Write the file unless it exists; returns whether this call wrote it.

        Of several callers, on any machines, exactly one gets True. No other caller may write the same `content`.
        """

    @abstractmethod
    def touch(self, name: str) -> None:
        """Set the time of the file's last change to now, by the storage's clock; raises FileNotFoundError."""

    @abstractmethod
    def modified(self, name: str) -> float:
        """When the file changed last, in seconds since 1970 by the storage's clock; raises FileNotFoundError."""

    @abstractmethod
    def files(self, prefix: str = "") -> list[str]:
        """Names of the files directly in the folder `prefix`, sorted; empty if there is no such folder."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Names of the folders directly inside, sorted."""

    @abstractmethod
    def held_bytes(self, name: str = "", *, without: Collection[str] = ()) -> int:
        """Bytes of all files in the folder, or below `name` in it; names directly in it that are `without` don't count.

        Targets of symbolic links don't count either.
        """

    @property
    def disk(self) -> Disk | None:
        """The file system of the folder; None for an object store, which has no size limit."""
        return None

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete the file, if it exists."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete the folder `name` and everything in it, if it exists."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Rename the folder `old` to `new`, replacing a folder of that name; raises FileNotFoundError.

        On a disk `new` is never seen with a part of its content; on an object store files are copied one by one.
        """

    @abstractmethod
    def fetch(self, name: str, target: Path) -> Path:
        """A local folder with the content of the folder `name`: itself if it is local, else a copy under `target`.

        Raises RunFolderError if there is anything else in it than regular files and folders.
        """

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        head, _, tail = name.rpartition("/")
        return tail in self.files(head)


class LocalFolder(Folder):
    """A folder on a file system of this machine, which may itself be reached through symbolic links."""

    def __init__(self, path: str | Path, *, closed: bool = False) -> None:
        try:
            self.path = Path(path).expanduser().resolve()
        except (RuntimeError, ValueError) as error:  # a circle of links, an unknown ~user, a NUL
            raise RunFolderError(f"a folder needs a valid path, got {str(path)!r}; {error}") from error
        self.uri = str(self.path)
        self._closed = closed

    @property
    def name(self) -> str:
        return self.path.name

    def inside(self, name: str) -> Path:
        """The path of a file or folder in this one; raises RunFolderError if it would lie elsewhere."""
        path = self.path / inner_name(name, self.uri)
        if not _leads_into(path, self.path):
            raise _outside(name, self.uri)
        return path

    def child(self, name: str) -> LocalFolder:
        closed = self._closed or (self.path / MARK).is_file()
        return LocalFolder(self.inside(name) if closed else self.path / inner_name(name, self.uri), closed=closed)

    def read(self, name: str) -> bytes:
        return self.read_from(name, 0)

    def read_from(self, name: str, start: int) -> bytes:
        with regular_file(self.inside(name)) as file:
            if os.fstat(file.fileno()).st_size - start > LARGEST_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), file.name)
            file.seek(start)
            return file.read()

    def read_at_most(self, name: str, most: int) -> bytes:
        path = self.path / inner_name(name, self.uri)
        if path.parent.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path.parent))
        with regular_file(path, getattr(os, "O_NOFOLLOW", 0)) as file:
            return file.read(most)

    def write(self, name: str, content: bytes) -> None:
        replace(self.inside(name), content)

    def create(self, name: str, content: bytes) -> bool:
        target = self.inside(name)
        with written_beside(target, content) as temporary:
            created = linked(temporary, target, content)
        sync(target.parent)
        return created

    def touch(self, name: str) -> None:
        os.utime(self.inside(name))  # without a given time the file server's clock counts

    def modified(self, name: str) -> float:
        with regular_file(self.inside(name)) as file:  # NFS asks its server when a file is opened
            return os.fstat(file.fileno()).st_mtime

    def append_to(self, name: str) -> IO[bytes]:
        """The file, opened for appending."""
        target = self.inside(name)
        make(target.parent)
        file = regular_file(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        sync(target.parent)
        return file

    def files(self, prefix: str = "") -> list[str]:
        folder = self.inside(prefix) if prefix else self.path
        if not folder.is_dir():
            return []
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file() and _stays_in(entry, self.path))

    def folders(self) -> list[str]:
        if not self.path.is_dir():
            return []
        closed = self._closed or (self.path / MARK).is_file()
        entries = (entry for entry in self.path.iterdir() if entry.is_dir())
        return sorted(entry.name for entry in entries if not closed or _stays_in(entry, self.path))

    def held_bytes(self, name: str = "", *, without: Collection[str] = ()) -> int:
        return path_bytes(self.path / inner_name(name, self.uri) if name else self.path, without=without)

    @property
    def disk(self) -> Disk | None:
        return disk_of(self.path)

    def remove(self, name: str) -> None:
        self.inside(name).unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        shutil.rmtree(self.inside(name), ignore_errors=True)

    def rename(self, old: str, new: str) -> None:
        source, target = self.inside(old), self.inside(new)
        if not source.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        sync_all(source)
        make(target.parent)
        with set_aside(target):
            source.rename(target)
        sync(source.parent)
        sync(target.parent)

    def fetch(self, name: str, target: Path) -> Path:
        source = self.inside(name)
        for entry in source.rglob("*"):
            if not _stays_in(entry, self.path):
                raise _outside(entry.relative_to(self.path).as_posix(), self.uri)
            if not entry.is_file() and not entry.is_dir():
                raise RunFolderError(f"a run has files and folders only, got {str(entry)!r}; remove it")
        return source


def inner_name(name: str, uri: str) -> str:
    """The name, if it is inside the folder at `uri`; otherwise raises RunFolderError."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise _outside(name, uri)
    return name


def _outside(name: str, uri: str) -> RunFolderError:
    return RunFolderError(
        f"the files of a run are inside its folder, got {name!r} in {uri!r}, which is outside of it; "
        "remove it, and don't trust the folder"
    )


def _leads_into(path: Path, folder: Path) -> bool:
    """Whether the path, which begins with the folder's, is one inside it once its symbolic links are followed."""
    if not any(os.path.islink(each) for each in _below(path, folder)):  # noqa: PTH114 -- asked thousands of times
        return path != folder
    try:
        return folder.resolve() in path.resolve().parents
    except (OSError, RuntimeError):  # links in a circle
        return False


def _below(path: Path, folder: Path) -> list[str]:
    """The path and its parent folders below the folder."""
    whole, start = str(path), len(str(folder).rstrip(os.sep)) + 1
    return [whole[:end] for end in range(start + 1, len(whole)) if whole[end] == os.sep] + [whole]


def _stays_in(entry: Path, folder: Path) -> bool:
    """Like `_leads_into`, for an entry of a folder for which that is true."""
    return not entry.is_symlink() or _leads_into(entry, folder)
