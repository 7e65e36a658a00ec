"""Regular files that anybody may have put there: opened without waiting, and their checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, cast


def regular_file(path: Path, flags: int = os.O_RDONLY) -> IO[bytes]:
    """The file, opened without waiting; raises OSError if it isn't a regular one. `flags` are those of `os.open`."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(handle, "ab" if flags & os.O_APPEND else "rb")  # noqa: PTH123 -- a descriptor


def sha256(path: Path) -> str:
    """The file's checksum in hexadecimal digits."""
    with regular_file(path) as file:
        return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()


def mark(path: Path) -> dict[str, Any]:
    """What a manifest says of a file, so that a changed one is recognised."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
