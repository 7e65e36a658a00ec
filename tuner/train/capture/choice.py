"""Which way of taking steps is fastest: found over a trial's first steps, or remembered from an earlier trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.train.capture.remembered import RememberedSeconds
from tuner.train.memory.errors import first_line

EAGER, GRAPH, COMPILED = "eager", "graph", "compiled"
WARM_UP_STEPS = 5
MEASURED_STEPS = 20
LEAST_GAIN = 1.05  # another way must be this many times faster than the best one before it


@dataclass(frozen=True)
class Way:
    """A way of taking steps.

    Attributes:
        name: as in records
        words: as in sentences, after "a step takes 2.00 ms"
        pays_after: it is worth starting if training would go on for more than these seconds in the ways before it
    """

    name: str
    words: str
    pays_after: float = 0.0


EAGERLY = Way(EAGER, "eagerly")
AS_ONE_GRAPH = Way(GRAPH, "as one CUDA graph", 5.0)  # it is recorded within a second
WITH_COMPILER = Way(COMPILED, "with torch.compile", 120.0)  # compiling takes up to a minute


class PathChoice:
    """Chooses before each step how to take it: each way for some steps, then the fastest.

    `notes` describe the results. A way that failed is given up for good.
    """

    def __init__(
        self, ways: Sequence[Way], now: Callable[[], float], remembered: RememberedSeconds | None = None
    ) -> None:
        """If `ways` has only the eager one, nothing is measured. `now` waits for the device, and returns seconds."""
        self.path = EAGER
        self.notes: list[str] = []
        self._ways, self._now, self._remembered = {EAGER: EAGERLY} | {way.name: way for way in ways}, now, remembered
        self._seconds = remembered.read() if remembered and ways else {}
        self._settled = not ways
        self._steps, self._begun, self._ahead = 0, 0.0, 0
        self._new = False  # whether a time isn't stored yet

    def begin_step(self, steps_ahead: int) -> str:
        """How to take the next step, with this many steps of the trial still ahead."""
        if not self._settled:
            self._ahead = steps_ahead
            self._look()
            self._steps += 1
        return self.path

    def settle(self, path: str) -> None:
        """Take steps this way from now on, without measuring; eagerly if it isn't available."""
        self.path, self._settled = path if path in self._ways else EAGER, True

    def give_up(self, path: str, reason: str, *, for_others: bool = True) -> None:
        """Never take steps this way again, nor, if it fails there too, in other trials.

        Not `for_others`: what was missing may be available there.
        """
        self.notes.append(f"steps are no longer taken {self._ways[path].words}: {reason}")
        self._seconds[path] = math.inf
        if for_others and self._remembered is not None:
            self._remembered.note_failure(path)
        if self._settled:
            self.settle(EAGER)
        elif self.path == path:
            self._try_next()

    def _look(self) -> None:
        """Measure; this waits for the device twice."""
        if self._steps < WARM_UP_STEPS:
            return
        if self._steps == WARM_UP_STEPS and self.path in self._seconds:
            self._try_next()
        elif self._steps == WARM_UP_STEPS:
            self._begun = self._now()
        elif self._steps == WARM_UP_STEPS + MEASURED_STEPS:
            self._seconds[self.path], self._new = (self._now() - self._begun) / MEASURED_STEPS, True
            self._try_next()

    def _try_next(self) -> None:
        """Go on with the next way that wasn't measured yet and pays, or settle."""
        paying: list[Way] = []
        left = math.inf  # seconds, in the fastest way so far
        for way in self._ways.values():
            if left >= way.pays_after:
                paying.append(way)
                left = min(left, self._seconds.get(way.name, math.inf) * self._ahead)
        for way in paying:
            if way.name not in self._seconds:
                self.path, self._steps = way.name, -1  # the step that starts it isn't measured
                return
        self._conclude([way.name for way in paying])

    def _conclude(self, paying: list[str]) -> None:
        best = EAGER
        for name in paying:
            if self._seconds[name] * LEAST_GAIN <= self._seconds[best]:
                best = name
        self.settle(best)
        if len(self._seconds) > 1:
            known = [f"{1000 * took:.2f} ms {self._ways[name].words}" for name, took in self._known()]
            self.notes.append(f"a step takes {', '.join(known)}: steps are taken {self._ways[best].words}")
        if self._remembered is not None and self._new:
            self._remembered.write(self._seconds)

    def _known(self) -> list[tuple[str, float]]:
        return [(name, took) for name, took in self._seconds.items() if math.isfinite(took) and name in self._ways]


def reason_of(error: BaseException) -> str:
    """An exception for a note, in one line."""
    return f"{type(error).__name__}: {first_line(error)}"
