"""Exports only write new files, and never replace files."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import RunFolderError


def new(path: Path) -> Path:
    """The path; raises RunFolderError if it exists."""
    if path.exists():
        raise RunFolderError(f"export writes new files, got {str(path)!r}, which exists; remove it or choose another")
    return path
