"""Where a trial runs during one stay on a worker."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placement:
    """Where a trial runs.

    Attributes:
        host: name of the machine
        pid: of the worker process
        devices: "cuda:3" for each GPU, by its number on this machine, or "2 CPUs"; for a trial that is spread over
            nodes, how many of all of them
        gpus: name of each of these GPUs, as far as NVML knows it
    """

    host: str
    pid: int
    devices: list[str]
    gpus: list[str] = field(default_factory=list)

    @property
    def described(self) -> str:
        """The placement in one line."""
        names = f" ({', '.join(dict.fromkeys(self.gpus))})" if self.gpus else ""
        return f"{self.host}, process {self.pid}, {', '.join(self.devices)}{names}"
