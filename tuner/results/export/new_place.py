"""Exports write new files, and replace none."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import RunFolderError


def new(path: Path) -> Path:
    """The path; RunFolderError if something is there."""
    if path.exists():
        raise RunFolderError(f"export writes new files, got {str(path)!r}, which exists; remove it or choose another")
    return path
