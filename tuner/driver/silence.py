"""Ray Tune without its own display: tuner shows its searches itself."""

from __future__ import annotations

from typing import Any

from ray.tune import ProgressReporter


class SilentReporter(ProgressReporter):  # type: ignore[misc]
    """Shows nothing; the one that Ray Tune takes in a notebook clears the output of the cell, and tuner's table."""

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        """Never."""
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        """Nothing."""
