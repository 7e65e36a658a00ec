"""Files of a run as answers. The study's code wrote them, so they must not act in the name of this server."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from tuner.service.contained_files import file_in, opened_file, parts_of
from tuner.service.errors import Code, ServiceError
from tuner.storage.folder import Folder, LocalFolder

CHUNK = 262_144
SANDBOX = "sandbox; default-src 'none'; frame-ancestors 'none'"
# The report contains its scripts and styles; its opaque origin keeps it from sending requests to this server.
OF_REPORTS = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)


def file_response(folder: Folder, name: str) -> Response:
    """A file of a run as an attachment. Raises ServiceError if there is no such file."""
    chunks, size = _opened(folder, name)
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(PurePosixPath(name).name, safe='')}",
        "content-security-policy": SANDBOX,
        "content-length": str(size),
    }
    return StreamingResponse(chunks, headers=headers, media_type="application/octet-stream")


def part_of(folder: Folder, name: str, start: int, most: int) -> bytes:
    """Up to `most` bytes of a file after the first `start`; empty if there is no such file."""
    try:
        if not isinstance(folder, LocalFolder):
            return folder.read_from(name, start)[:most]
        descriptor, _ = opened_file(folder.path, name)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(start)
        return file.read(most)


def archive(folder: Folder, name: str) -> StreamingResponse:
    """All files of a run as a tar archive named `name`: only regular files, no links. Raises ServiceError."""
    if not isinstance(folder, LocalFolder):
        raise ServiceError(
            Code.CONFLICT,
            "an archive is of a run on the server's disk",
            f"one at {folder.uri!r}",
            "fetch it from there",
        )
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.tar",
        "content-security-policy": SANDBOX,
    }
    return StreamingResponse(_tar(folder, name), headers=headers, media_type="application/x-tar")


def _opened(folder: Folder, name: str) -> tuple[Iterator[bytes], int]:
    try:
        if isinstance(folder, LocalFolder):
            descriptor, found = opened_file(folder.path, name)
            return _content(os.fdopen(descriptor, "rb"), found.st_size), found.st_size
        parts_of(name)
        content = folder.read(name)
        return iter((content,)), len(content)
    except (OSError, ValueError) as error:
        raise ServiceError(
            Code.NOT_FOUND, "a file is a regular one of the run", repr(name)[:200], "the archive names them all"
        ) from error


def _content(file: IO[bytes], size: int) -> Iterator[bytes]:
    with file:
        reading = _Exactly(file, size)
        while chunk := reading.read(CHUNK):
            yield chunk


class _Exactly:
    """Exactly as many bytes of a file as it had when it was opened: answers and archives have announced that number."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = CHUNK) -> bytes:
        size = min(size, self._left)
        content = self._file.read(size).ljust(size, b"\0")
        self._left -= len(content)
        return content


def _tar(folder: LocalFolder, name: str) -> Iterator[bytes]:
    """The archive piece by piece: headers of the standard library, contents as they are read."""
    for path, file, found in _regular(folder):
        with file:
            info = tarfile.TarInfo(f"{name}/{path}")
            info.size, info.mtime, info.mode = found.st_size, int(found.st_mtime), 0o644
            yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            content = _Exactly(file, found.st_size)
            while chunk := content.read():
                yield chunk
            yield bytes(-found.st_size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _regular(folder: LocalFolder) -> Iterator[tuple[str, IO[bytes], os.stat_result]]:
    """Every regular file of a folder, opened; links are skipped."""
    for base, folders, names, descriptor in os.fwalk(folder.path, follow_symlinks=False):
        folders.sort()
        inner = os.path.relpath(base, folder.path)
        for name in sorted(names):
            try:
                opened, found = file_in(descriptor, name)
            except OSError:
                continue
            yield name if inner == "." else f"{inner}/{name}", os.fdopen(opened, "rb"), found
