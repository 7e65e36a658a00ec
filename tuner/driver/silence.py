"""Ray Tune without its own display: tuner shows its searches itself."""

from __future__ import annotations

from typing import Any

from ray.tune import ProgressReporter


class SilentReporter(ProgressReporter):  # type: ignore[misc]
    """Shows nothing; Ray Tune's own reporter in a notebook clears the cell's output, and with it tuner's table."""

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        """Never report."""
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        """Does nothing."""
