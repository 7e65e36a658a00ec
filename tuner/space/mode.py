"""Which of two values of a metric is better."""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["min", "max"]


@dataclass(frozen=True)
class Objective:
    """A metric, and whether it is to be minimised or maximised."""

    metric: str
    mode: Mode

    def oriented(self, value: float) -> float:
        """The value, such that higher is better."""
        return value if self.mode == "max" else -value
