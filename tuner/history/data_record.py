"""`data.json`: what a run's images are, as far as somebody's file can be read."""

from __future__ import annotations

import json
from typing import Any

from tuner.foreign_text import in_utf8
from tuner.storage.folder import Folder

DATA_FILE = "data.json"
MOST_READ = 1_000  # files that were left out, which a report shows


def files_left_out(folder: Folder) -> tuple[list[tuple[str, str]], int]:
    """Paths and reasons of what a run's images were read without, and how many there are in all.

    None if the run has no such file, or a damaged one: then only its notice says how many they are.
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
