"""Files that a verb writes where the user says, without replacing another unasked."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import StudyError


def check_new(path: Path, option: str, *, force: bool) -> None:
    if path.exists() and not force:
        raise StudyError(f"{option} names a new file, got {str(path)!r}, which exists; choose another, or add --force")
    if not path.parent.is_dir():
        raise StudyError(f"{option} names a file in a folder that is there, got {str(path)!r}; make the folder first")


def write_new(path: Path, text: str, option: str, *, force: bool) -> None:
    check_new(path, option, force=force)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StudyError(f"{option} needs a file that can be written, got {str(path)!r} ({error.strerror})") from error
