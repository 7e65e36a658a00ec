"""Reads a driver's reports from its folder; see `local.py` for the files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.service.contained_files import opened_file
from tuner.service.executors.executor import Ended
from tuner.storage.folder import LocalFolder

LARGEST_FILE = 1_000_000  # bytes of a driver's file that are read
LOG = "log"


def run_of(folder: Path) -> str | None:
    """The driver's run folder, once it has one."""
    begun = read(folder, "begun.json")
    run = begun.get("run") if begun else None
    return run if isinstance(run, str) and _has_utf8(run) else None


def ended_of(folder: Path) -> Ended | None:
    """How the driver says that it ended; None if it said nothing."""
    told = read(folder, "ended.json")
    if told is None:
        return None
    status, error = told.get("status"), told.get("error")
    pair = (str(error[0]), str(error[1])) if isinstance(error, list) and len(error) == 2 else None
    return Ended(status if isinstance(status, str) else None, pair)


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """An object that was written as a whole; None if there is none, or something else."""
    try:
        told = json.loads(LocalFolder(folder).read_at_most(name, LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def log_end(folder: Path, most: int) -> bytes | None:
    """The last bytes of a driver's output, at most this many; None if there is no such file."""
    return _log_from(folder, lambda size: max(0, size - most), most)


def log_part(folder: Path, start: int, most: int) -> bytes:
    """Up to `most` bytes of a driver's output, after the first `start`."""
    return _log_from(folder, lambda _: max(0, start), most) or b""


def note_end(folder: Path, words: str) -> None:
    """Write into its log why a driver could not be started, if the disk allows it."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{words}\n")


def _log_from(folder: Path, start: Callable[[int], int], most: int) -> bytes | None:
    try:
        descriptor, found = opened_file(folder, LOG)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        file.seek(start(found.st_size))
        return file.read(most)


def _has_utf8(text: str) -> bool:
    """Whether a database can store the text: lone surrogates have no encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
