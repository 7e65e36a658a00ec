"""A run under a prefix of an object store (s3://…), through pyarrow's file systems."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from tuner.errors import RunFolderError
from tuner.storage.azure import SCHEMES, AzurePlace
from tuner.storage.folder import LARGEST_BYTES, Folder, inner_name
from tuner.storage.outages import waits_for_the_store

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_UNCONDITIONAL_SECONDS = 2.0
_READS = 10


class ObjectFolder(Folder):
    """A prefix of an object store, through pyarrow's file systems (s3, gcs, abfs, …)."""

    def __init__(self, uri: str, filesystem: FileSystem | None = None, path: str | None = None) -> None:
        from pyarrow.fs import FileSystem as Arrow

        location, question, query = uri.partition("?")
        self._location, self._query = _quoted(location.rstrip("/")), question + query.rstrip("/")
        self.uri = self._location + self._query
        if filesystem is None or path is None:
            try:
                filesystem, path = _azure(self.uri) or Arrow.from_uri(self.uri)
            except (OSError, ValueError) as error:
                raise RunFolderError(
                    f"storage needs a folder or a URI such as s3://bucket/prefix, got {uri!r}; {error}"
                ) from error
        self._filesystem, self._path = filesystem, path.rstrip("/")

    def child(self, name: str) -> ObjectFolder:
        return ObjectFolder(f"{self._location}/{quote(name)}{self._query}", self._filesystem, self._key(name))

    @property
    def key(self) -> str:
        """Bucket and prefix, as the file system needs them."""
        return self._path

    @property
    def filesystem(self) -> FileSystem:
        """The file system that reads and writes there."""
        return self._filesystem

    @property
    def store(self) -> str:
        """Bucket and endpoint."""
        return self._path.partition("/")[0] + self._query

    @property
    def name(self) -> str:
        return self._path.rsplit("/", 1)[-1]

    def read(self, name: str) -> bytes:
        key, failed = self._key(name), False
        for _ in range(_READS):  # pyarrow asks for the size, then reads so much: wrong if the object changes in between
            try:
                content = self._content(key)
            except FileNotFoundError:
                raise
            except OSError:
                if failed:
                    raise
                failed = True
                continue
            if len(content) == self._size(key):
                return content
        return self._content(key)

    @waits_for_the_store
    def _content(self, key: str) -> bytes:
        with self._filesystem.open_input_stream(key) as stream:
            content = bytes(stream.read(LARGEST_BYTES + 1))
        if len(content) > LARGEST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), key)
        return content

    @waits_for_the_store
    def _size(self, key: str) -> int | None:
        size: int | None = self._filesystem.get_file_info(key).size
        return size

    @waits_for_the_store
    def read_at_most(self, name: str, most: int) -> bytes:
        with self._filesystem.open_input_stream(self._key(name)) as stream:
            return bytes(stream.read(most))

    @waits_for_the_store
    def write(self, name: str, content: bytes) -> None:
        with self._filesystem.open_output_stream(self._key(name)) as stream:
            stream.write(content)

    def create(self, name: str, content: bytes) -> bool:
        from tuner.storage.conditional import UnconditionalStore, create_object

        try:
            created = create_object(self.uri, self._key(name), content, self._filesystem)
        except UnconditionalStore:
            return self._create_unconditionally(name, content)
        return created or self.read(name) == content  # a request that was repeated in transit finds its own object

    def touch(self, name: str) -> None:
        self.write(name, self.read(name))

    @waits_for_the_store
    def modified(self, name: str) -> float:
        info = self._filesystem.get_file_info(self._key(name))
        if info.mtime_ns is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._key(name))
        return float(info.mtime_ns) / 1e9

    def files(self, prefix: str = "") -> list[str]:
        from pyarrow.fs import FileType

        return [info.base_name for info in self._entries(prefix) if info.type == FileType.File]

    def folders(self) -> list[str]:
        from pyarrow.fs import FileType

        return [info.base_name for info in self._entries("") if info.type == FileType.Directory]

    @waits_for_the_store
    def held_bytes(self, name: str = "", *, without: Collection[str] = ()) -> int:
        from pyarrow.fs import FileSelector

        base = self._key(name) if name else self._path
        infos = self._filesystem.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
        counted = (info for info in infos if info.path[len(base) :].strip("/").split("/")[0] not in without)
        return sum(info.size or 0 for info in counted)

    @waits_for_the_store
    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(self._key(name))

    @waits_for_the_store
    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.delete_dir(self._key(name))

    def rename(self, old: str, new: str) -> None:
        from pyarrow.fs import copy_files

        source, target = self._key(old), self._key(new)
        if not self._entries(old):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self.delete(new)
        copy_files(source, target, source_filesystem=self._filesystem, destination_filesystem=self._filesystem)
        self.delete(old)

    @waits_for_the_store
    def fetch(self, name: str, target: Path) -> Path:
        from pyarrow.fs import LocalFileSystem, copy_files

        target.mkdir(parents=True, exist_ok=True)
        source = self._key(name)
        copy_files(source, str(target), source_filesystem=self._filesystem, destination_filesystem=LocalFileSystem())
        return target

    def _create_unconditionally(self, name: str, content: bytes) -> bool:
        """Of callers within the delay the last wins; without conditional writes nothing better is possible."""
        if self.exists(name):
            return False
        self.write(name, content)
        time.sleep(_UNCONDITIONAL_SECONDS)
        return self.read(name) == content

    def _key(self, name: str) -> str:
        return f"{self._path}/{inner_name(name, self.uri)}"

    @waits_for_the_store
    def _entries(self, prefix: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        base = self._key(prefix) if prefix else self._path
        infos = self._filesystem.get_file_info(FileSelector(base, allow_not_found=True))
        return sorted(infos, key=lambda info: info.base_name)


def _azure(uri: str) -> tuple[FileSystem, str] | None:
    """File system and path in Azure; None for other stores, and if only the URI's query says how to reach it."""
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        return None
    place = AzurePlace.of(uri)
    return (place.filesystem(), place.path) if place.is_told or not parts.query else None


def _quoted(location: str) -> str:
    """A URI as typed, with escapes for characters that a URI can't contain."""
    return quote(location, safe="/%:@!$&'()*+,;=~", errors="replace")
