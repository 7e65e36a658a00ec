"""Reads `data.json`, which describes a run's images, from a file that may be damaged or foreign."""

from __future__ import annotations

import json
from typing import Any

from tuner.storage.folder import Folder
from tuner.text import in_utf8

DATA_FILE = "data.json"
MOST_READ = 1_000  # of the files that were left out, as many as a report shows


def began_before(folder: Folder) -> bool:
    """Whether a run began, or has last gone on, with a version that had no scale of deep images."""
    try:
        return "scale" not in json.loads(folder.read(DATA_FILE))
    except (OSError, ValueError, TypeError, RecursionError):
        return True


def files_left_out(folder: Folder) -> tuple[list[tuple[str, str]], int]:
    """Paths of image files that a run left out, each with its reason, and their total number.

    None if the run has no such record, or a damaged one: then only its notice gives the number.
    """
    try:
        content: Any = json.loads(folder.read(DATA_FILE).decode())
    except (OSError, ValueError, RecursionError):
        return [], 0
    listed = content.get("left_out") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        return [], 0
    sound = [
        (str(in_utf8(each["path"])), str(in_utf8(each["reason"])))
        for each in listed[:MOST_READ]
        if isinstance(each, dict) and isinstance(each.get("path"), str) and isinstance(each.get("reason"), str)
    ]
    count = content.get("files_left_out")
    return sound, max(count if isinstance(count, int) else 0, len(sound))
