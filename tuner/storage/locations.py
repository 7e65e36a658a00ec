"""Opens folders by path or URI, and checks whether their files may be written and their code may be run."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import RunFolderError
from tuner.storage.folder import Folder, LocalFolder

PROBE_BYTES = 65536
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def open_folder(location: str | Path) -> Folder:
    """The folder at a path or URI; it need not exist."""
    text = str(location)
    if "://" in text and not text.startswith("file://"):
        from tuner.storage.object_folder import ObjectFolder

        return ObjectFolder(text)
    return LocalFolder(text.removeprefix("file://"))


def check_writable(folder: Folder) -> None:
    """Write a file of 64 KiB into the folder, which is created if it is missing, and delete it again.

    Raises RunFolderError with the storage's reason if that fails.
    """
    try:
        with marked(folder, bytes(PROBE_BYTES)):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fix = "free some of it or choose another" if getattr(error, "errno", None) in _NO_SPACE else "choose another"
        raise RunFolderError(
            f"--storage needs a folder that can be written to, got {folder.uri!r} ({reason}); {fix}"
        ) from error


@contextmanager
def marked(folder: Folder, content: bytes = b"") -> Iterator[str]:
    """A file in the folder for the length of the block; yields its name. A missing folder is created.

    Raises OSError or ValueError if it can't be written.
    """
    name, missing = f".writable-{uuid.uuid4().hex}", _missing(folder)
    try:
        folder.write(name, content)
        try:
            yield name
        finally:
            folder.remove(name)
    finally:
        for made in missing:
            with suppress(OSError):  # somebody else has written something there meanwhile
                made.rmdir()


def no_space(error: BaseException | str | None) -> bool:
    """Whether an exception, or its text, says that a disk, or the user's quota, is full."""
    texts = [os.strerror(code) for code in _NO_SPACE]
    return getattr(error, "errno", None) in _NO_SPACE or any(text in str(error) for text in texts)


def _missing(folder: Folder) -> list[Path]:
    """The folders that would have to be created for this one, the innermost first."""
    if not isinstance(folder, LocalFolder):
        return []
    return [path for path in (folder.path, *folder.path.parents) if not path.exists()]


def fetched_file(folder: Folder, name: str, target: Path) -> Path:
    """A local path of the file: its own, or that of a copy in the folder `target`.

    Raises RunFolderError if it can't be read.
    """
    copy = target / name
    try:
        content = folder.read(name)
        if isinstance(folder, LocalFolder):
            return folder.inside(name)
        copy.write_bytes(content)
    except OSError as error:
        reason = error.strerror or error
        raise RunFolderError(f"a run needs its {name}, got none in {folder.uri!r} ({reason}); restore it") from error
    return copy


def require_own(folder: Folder, name: str) -> None:
    """Refuse to run a file as code that another user may have written.

    Raises RunFolderError unless folder and file belong to the user of this process; on object storage, always.
    """
    if not isinstance(folder, LocalFolder):
        whose = "lies on object storage, where anybody may have written it"
    else:
        try:
            owners = {os.stat(path).st_uid for path in (folder.path, folder.inside(name))}  # noqa: PTH116
        except OSError as error:
            raise RunFolderError(
                f"a run needs its {name}, got none in {folder.uri!r} ({error.strerror}); restore it"
            ) from error
        if not hasattr(os, "geteuid"):
            whose = "has an owner that Windows doesn't show"
        elif owners == {os.geteuid()}:
            return
        else:
            whose = "belongs to another user"
    raise RunFolderError(
        f"only your own code may run, got {folder.uri!r}, which {whose}; read its {name}, and if you trust it add "
        "--trust (trust=True from Python)"
    )
