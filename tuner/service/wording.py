"""The result of a study in a few words, for pages and commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.results.text import short
from tuner.service.model import State


def outcome(state: str, progress: Mapping[str, Any]) -> str:
    """What a finished study found, from its `Progress` as a mapping; empty for others, and if nothing is known."""
    if state != State.FINISHED or progress.get("best") is None:
        return ""
    ended = sum(progress["trials"].values())
    return f"{progress['metric']} {short(progress['best'])}, trial {progress['best_trial']} of {ended}"
