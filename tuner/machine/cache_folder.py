"""Where tuner stores data that later searches use again."""

from __future__ import annotations

import os
from pathlib import Path


def default_folder() -> Path:
    """$TUNER_CACHE, else `tuner` in the user's cache folder."""
    if folder := os.environ.get("TUNER_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tuner"
