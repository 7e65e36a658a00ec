"""Where a trial runs during one stay on a worker."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a trial runs.

    Attributes:
        host: name of the machine
        pid: of the worker process
        devices: "cuda:3" for each GPU, by its number on this machine, or "2 CPUs"; for a trial that is spread over
            nodes, how many of all of them
        gpus: name of each of these GPUs, as far as NVML knows it
        together: number of trials that the worker trains there as one, this one included
    """

    host: str
    pid: int
    devices: list[str]
    gpus: list[str] = field(default_factory=list)
    together: int = 1

    @property
    def fields(self) -> dict[str, Any]:
        """As fields of an event."""
        told = asdict(self)
        return told if self.together > 1 else {name: value for name, value in told.items() if name != "together"}

    @property
    def described(self) -> str:
        """The placement in one line."""
        names = f" ({', '.join(dict.fromkeys(self.gpus))})" if self.gpus else ""
        return f"{self.host}, process {self.pid}, {', '.join(self.devices)}{names}"
