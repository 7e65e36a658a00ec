"""What a search does about trials that fail, by cause."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.errors import StudyError, shown

SECONDS_PER_MINUTE = 60.0


@dataclass(frozen=True)
class Failures:
    """How often a failed trial is tried again, and when failures end the search.

    A trial that is tried again keeps its number, configuration and seed, and goes on from its last checkpoint; without
    one it starts from its beginning. A trial that diverged is never tried again.

    Args:
        lost: how often a trial is tried again after its worker or node died, or after it hung
        error: how often a trial is tried again after it raised an exception
        out_of_memory: how often a trial is tried again after it ran out of memory even with one image at a time, or its
            function ran out of memory. It is then alone on its device; on CPUs, and if each trial has a part of a GPU,
            no other trial of the search runs at the same time
        alike: the search ends when this many trials have failed with the same exception at the same place, and no other
            trial got farther since the first of these failures; None: failures never end it
        hung_minutes: a trial that reports nothing for this many minutes, since its start or its last report, is killed
            and counts as lost; None: never. The first epoch and loading the data are included

    Raises StudyError for a setting that can't work.
    """

    lost: int = 3
    error: int = 0
    out_of_memory: int = 1
    alike: int | None = 5
    hung_minutes: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("lost", "error", "out_of_memory"):
            _check_count(name, getattr(self, name), least=0, fix="use 0 to try no trial again")
        if self.alike is not None:
            _check_count("alike", self.alike, least=1, fix="use 5, or None if failures are never to end the search")
        if self.hung_minutes is not None and not _is_time(self.hung_minutes):
            raise StudyError(
                f"Failures.hung_minutes needs a number above 0, got {shown(self.hung_minutes)}; "
                "use more than the longest epoch takes, or None"
            )

    @property
    def hung_seconds(self) -> float | None:
        """`hung_minutes` in seconds."""
        return None if self.hung_minutes is None else self.hung_minutes * SECONDS_PER_MINUTE

    def tries(self, kind: str) -> int:
        """How often a trial is tried again after a failure that counts as "lost", "error" or "out_of_memory"."""
        return {"lost": self.lost, "error": self.error, "out_of_memory": self.out_of_memory}.get(kind, 0)


def _check_count(name: str, value: object, *, least: int, fix: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise StudyError(f"Failures.{name} needs a whole number of at least {least}, got {shown(value)}; {fix}")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value < 1e7
