"""Opens files in a run's folder, where the study's code may have created anything: links, pipes, devices.

A path is opened component by component, each relative to the folder opened before it and without following links, so
that nothing outside can be reached, even if somebody replaces a folder by a link meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe without a writer must not block us


def parts_of(name: str) -> tuple[str, ...]:
    """The components of a relative path; raises FileNotFoundError for one that could lead elsewhere."""
    parts = tuple(name.split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise FileNotFoundError(errno.ENOENT, "no such file", name)
    return parts


@contextmanager
def opened_folder(root: Path, parts: tuple[str, ...] = ()) -> Iterator[int]:
    """The descriptor of a folder in `root`, closed at the end; raises OSError, also for links and for non-folders."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def opened_file(root: Path, name: str) -> tuple[int, os.stat_result]:
    """A regular file in `root`, open for reading; the caller closes it.

    Raises OSError, also for links, pipes, devices and folders.
    """
    *folders, last = parts_of(name)
    with opened_folder(root, tuple(folders)) as folder:
        return file_in(folder, last)


def file_in(folder: int, name: str) -> tuple[int, os.stat_result]:
    """A regular file directly in an open folder, open for reading; the caller closes it. Raises OSError."""
    descriptor = os.open(name, _FILE, dir_fd=folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no regular file", name)
    return descriptor, found
