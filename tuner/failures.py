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
        lost: more tries of a trial whose worker or node died, or that hung
        error: more tries of a trial that raised an exception
        out_of_memory: more tries of a trial whose memory ran out although it had come down to one image, or whose
            function ran out of it. It is then alone on its device; on CPUs, and where trials have a part of a GPU each,
            no other trial of the search runs meanwhile
        alike: the search ends when so many trials have failed with the same exception at the same place and no other
            trial got farther since the first of them; None: failures never end it
        hung_minutes: a trial that reports nothing for so long, since its start or its last report, is killed and counts
            as lost; None: never. Its first epoch is included, and so is loading the data

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
