"""Writes files completely or not at all, also in a power cut and on a network file system."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def written_beside(target: Path, content: bytes) -> Iterator[Path]:
    """A temporary file with the content in the target's folder, synced to the disk; deleted at the end of the block."""
    make(target.parent)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def replace(target: Path, content: bytes) -> None:
    """Write a file completely or not at all; one that is there is replaced."""
    with written_beside(target, content) as temporary:
        temporary.replace(target)
    sync(target.parent)


def linked(temporary: Path, target: Path, content: bytes) -> bool:
    """Write a file by a hard link: it appears completely or not at all, for one process only, also on NFS."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return temporary.stat().st_nlink == 2  # NFS repeats a request whose answer was lost, and finds its own link
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _written_exclusively(target, content)
    return True


def _written_exclusively(target: Path, content: bytes) -> bool:
    """For file systems without links; a reader may see an incomplete file."""
    try:
        with target.open("xb") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


@contextmanager
def set_aside(target: Path) -> Iterator[None]:
    """Within the block the name is free; what had it is deleted at the end, or restored after an error."""
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):
        target.rename(aside)
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            aside.rename(target)
        raise
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)


def make(folder: Path) -> None:
    """Make the folder and those above it, so that a power cut doesn't remove them."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync_all(folder: Path) -> None:
    """`sync` for a folder with everything in it."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir() or path.is_file():
            sync(path)


def sync(path: Path) -> None:
    """Force a file or folder to the disk, if its file system can do that."""
    with suppress(OSError):  # some file systems don't sync folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
