"""What a driver wrote into its folder of how far it came; see `local.py` for the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.service.executors.executor import Ended
from tuner.storage.folder import LocalFolder

LARGEST_FILE = 1_000_000  # bytes that are read of what a driver wrote


def run_of(folder: Path) -> str | None:
    """Its run folder, once it has one."""
    begun = read(folder, "begun.json")
    run = begun.get("run") if begun else None
    return run if isinstance(run, str) else None


def ended_of(folder: Path) -> Ended | None:
    """How it ended, by its own account; None where it gave none."""
    told = read(folder, "ended.json")
    if told is None:
        return None
    status, error = told.get("status"), told.get("error")
    pair = (str(error[0]), str(error[1])) if isinstance(error, list) and len(error) == 2 else None
    return Ended(status if isinstance(status, str) else None, pair)


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """An object that was written as a whole; None where there is none, or something else."""
    try:
        told = json.loads(LocalFolder(folder).read_at_most(name, LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None
