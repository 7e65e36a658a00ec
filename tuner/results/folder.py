"""Where a run lies: a folder on a disk, or under a prefix of an object store (s3://…), with the same few verbs."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tuner.errors import RunFolderError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class Folder(ABC):
    """A folder of named files; names are relative, with forward slashes."""

    uri: str

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.uri.rstrip("/").rsplit("/", 1)[-1]

    @abstractmethod
    def child(self, name: str) -> Folder:
        """The folder `name` inside this one, which need not exist."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The file's content; raises FileNotFoundError."""

    def read_from(self, name: str, start: int) -> bytes:
        """The file's content after its first `start` bytes; raises FileNotFoundError."""
        return self.read(name)[start:]

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Replace the file as a whole: a reader sees the old content or the new one, never a part."""

    @abstractmethod
    def files(self, prefix: str = "") -> list[str]:
        """Names of the files directly in the folder `prefix`, sorted; empty where there is no such folder."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Names of the folders directly inside, sorted."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete the folder `name` and all in it, if it is there."""

    @abstractmethod
    def fetch(self, name: str, target: Path) -> Path:
        """A local folder with what the folder `name` holds: itself where it is local, else a copy under `target`."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        head, _, tail = name.rpartition("/")
        return tail in self.files(head)


class LocalFolder(Folder):
    """A folder on a file system of this machine."""

    def __init__(self, path: str | Path) -> None:
        try:
            self.path = Path(path).expanduser().resolve()
        except (RuntimeError, ValueError) as error:  # links that lead round in a circle, an unknown ~user, a NUL
            raise RunFolderError(f"a folder needs a path that leads somewhere, got {str(path)!r}; {error}") from error
        self.uri = str(self.path)

    def child(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def read_from(self, name: str, start: int) -> bytes:
        with (self.path / name).open("rb") as file:
            file.seek(start)
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def append_to(self, name: str) -> IO[bytes]:
        """The file, opened for appending."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("ab")

    def files(self, prefix: str = "") -> list[str]:
        folder = self.path / prefix
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else []

    def folders(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir() if entry.is_dir()) if self.path.is_dir() else []

    def delete(self, name: str) -> None:
        import shutil

        shutil.rmtree(self.path / name, ignore_errors=True)

    def fetch(self, name: str, target: Path) -> Path:
        return self.path / name


class ObjectFolder(Folder):
    """A prefix of an object store, through pyarrow's file systems (s3, gcs, abfs, …)."""

    def __init__(self, uri: str, filesystem: FileSystem | None = None, path: str | None = None) -> None:
        from pyarrow.fs import FileSystem as Arrow

        self.uri = uri.rstrip("/")
        if filesystem is None or path is None:
            try:
                filesystem, path = Arrow.from_uri(self.uri)
            except (OSError, ValueError) as error:
                raise RunFolderError(
                    f"storage needs a folder or a URI such as s3://bucket/prefix, got {uri!r}; {error}"
                ) from error
        self._filesystem, self._path = filesystem, path.rstrip("/")

    def child(self, name: str) -> ObjectFolder:
        base, question, query = self.uri.partition("?")
        return ObjectFolder(f"{base}/{name}{question}{query}", self._filesystem, f"{self._path}/{name}")

    @property
    def name(self) -> str:
        return self._path.rsplit("/", 1)[-1]

    def read(self, name: str) -> bytes:
        with self._filesystem.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read())

    def write(self, name: str, content: bytes) -> None:
        with self._filesystem.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(content)

    def files(self, prefix: str = "") -> list[str]:
        from pyarrow.fs import FileType

        return [info.base_name for info in self._entries(prefix) if info.type == FileType.File]

    def folders(self) -> list[str]:
        from pyarrow.fs import FileType

        return [info.base_name for info in self._entries("") if info.type == FileType.Directory]

    def delete(self, name: str) -> None:
        try:
            self._filesystem.delete_dir(f"{self._path}/{name}")
        except FileNotFoundError:
            return

    def fetch(self, name: str, target: Path) -> Path:
        from pyarrow.fs import LocalFileSystem, copy_files

        target.mkdir(parents=True, exist_ok=True)
        source = f"{self._path}/{name}"
        copy_files(source, str(target), source_filesystem=self._filesystem, destination_filesystem=LocalFileSystem())
        return target

    def _entries(self, prefix: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        base = f"{self._path}/{prefix}".rstrip("/")
        infos = self._filesystem.get_file_info(FileSelector(base, allow_not_found=True))
        return sorted(infos, key=lambda info: info.base_name)


def open_folder(location: str | Path) -> Folder:
    """The folder at a path or URI; it need not exist."""
    text = str(location)
    if "://" in text and not text.startswith("file://"):
        return ObjectFolder(text)
    return LocalFolder(text.removeprefix("file://"))


def fetched_file(folder: Folder, name: str, target: Path) -> Path:
    """A local path of the file: its own, or that of a copy in the folder `target`.

    Raises RunFolderError where it can't be read.
    """
    if isinstance(folder, LocalFolder):
        return folder.path / name
    copy = target / name
    try:
        copy.write_bytes(folder.read(name))
    except OSError as error:
        raise RunFolderError(f"a run needs its {name}, got none in {folder.uri!r} ({error}); restore it") from error
    return copy


def require_own(folder: Folder, name: str) -> None:
    """Refuse to run a file as code that another user may have written.

    Raises RunFolderError unless folder and file belong to the user of this process; on object storage, always.
    """
    if not isinstance(folder, LocalFolder):
        whose = "lies on object storage, where anybody may have written it"
    else:
        try:
            owners = {os.stat(path).st_uid for path in (folder.path, folder.path / name)}  # noqa: PTH116
        except OSError as error:
            raise RunFolderError(
                f"a run needs its {name}, got none in {folder.uri!r} ({error.strerror}); restore it"
            ) from error
        if owners == {os.geteuid()}:
            return
        whose = "belongs to another user"
    raise RunFolderError(
        f"only code of your own is run, got {folder.uri!r}, which {whose}; read its {name}, and if you trust it add "
        "--trust (trust=True from Python)"
    )


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
