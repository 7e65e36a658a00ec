"""A run's title: the user's name for it, in addition to its study's name and the time of its start.

It is in its own file, `title.txt`, which anybody with write access to the folder can replace as a whole, also while a
search runs; the folder keeps its name, so that links to it stay valid.
"""

from __future__ import annotations

from tuner.errors import RunFolderError, shown
from tuner.storage.folder import Folder
from tuner.text import in_utf8, printable

TITLE_FILE = "title.txt"
LONGEST = 100  # characters


def rename(folder: Folder, title: str) -> None:
    """Give the run in a folder a title. Raises RunFolderError for one that can't be shown, or can't be written."""
    check_title(title)
    try:
        folder.write_text(TITLE_FILE, title.strip() + "\n")
    except OSError as error:
        raise RunFolderError(
            f"a run's folder needs to be one that can be written to, got {folder.uri!r} ({error.strerror or error}); "
            "check its permissions and free space"
        ) from error


def check_title(title: object) -> None:
    """Raise RunFolderError with rule, value and fix for an invalid title."""
    problem = _problem(title)
    if problem is not None:
        raise RunFolderError(
            f"a run's name needs 1 to {LONGEST} characters that can be shown, got {problem}; write another"
        )


def read_title(folder: Folder) -> str | None:
    """The run's title; None if it has none, or none that can be shown."""
    try:
        title = folder.read(TITLE_FILE).decode("utf-8").strip()
    except (OSError, ValueError, RunFolderError):
        return None
    return None if _problem(title) else str(in_utf8(title))


def _problem(title: object) -> str | None:
    if not isinstance(title, str) or not title.strip():
        return shown(title)
    if len(title.strip()) > LONGEST:
        return f"{len(title.strip())} of them"
    if printable(title) != title or "\n" in title or "\t" in title:
        return printable(ascii(title))
    return None
