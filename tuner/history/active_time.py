"""When drivers worked on a run: the time between two drivers, in which no search ran, doesn't count."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass
class ActiveTime:
    """The stretches of time in which a driver worked on a run, from its first event to its last; in seconds since 1970.

    `since` is the start of the stretch that still goes on, None if no driver works on the run.
    """

    ended: list[tuple[float, float]] = field(default_factory=list)
    since: float | None = None

    def begin(self, time: float) -> None:
        """A driver begins to work on the run."""
        self.since = time

    def end(self, time: float | None) -> None:
        """The driver's last event was at this time."""
        if self.since is not None and time is not None:
            self.ended.append((self.since, max(self.since, time)))  # a clock may have been set back
            self.since = None

    @property
    def seconds(self) -> float:
        """Seconds of the stretches that have ended."""
        return sum((end - start for start, end in self.ended), 0.0)

    def until(self, time: float | None) -> float:
        """Seconds up to a time that is not before the last stretch."""
        going_on = 0.0 if self.since is None or time is None else max(0.0, time - self.since)
        return self.seconds + going_on

    def at(self, time: float) -> float:
        """How many seconds of search had passed at a time; in a pause, those up to its start.

        Clocks of two drivers may differ, so that their stretches overlap: the later stretch that has this time counts.
        """
        begun = [each for each in self._stretches() if each[0] <= time]
        within = [each for each in begun if time <= each[1]]
        return sum(before + min(time, end) - start for start, end, before in (within or begun)[-1:])

    def _stretches(self) -> list[tuple[float, float, float]]:
        """Start and end of each stretch, and the seconds before it; the one that goes on has no end."""
        known = [*self.ended, *([] if self.since is None else [(self.since, math.inf)])]
        before = accumulate((end - start for start, end in known), initial=0.0)
        return [(start, end, seconds) for (start, end), seconds in zip(known, before, strict=False)]
