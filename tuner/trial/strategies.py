"""How a trial can use several devices: one table that checks, workers, terminal and documents read. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True)
class DeviceStrategy:
    """A way to train one trial on several devices.

    Attributes:
        name: as in a study file
        implementation: "module:Class" of the `tuner.train.parallel.Strategy` that does it
        process_per_device: whether each device has a process, which creates the class with the group of all processes;
            otherwise one process creates it with its number of GPUs, and can't use CPUs or several nodes
        whole_batches: whether each device sees every image of a batch, so that none can have too few
    """

    name: str
    implementation: str
    process_per_device: bool = True
    whole_batches: bool = False

    def load(self) -> Any:
        """The class; imports torch."""
        return resolve_name(self.implementation)


TABLE: tuple[DeviceStrategy, ...] = (
    DeviceStrategy("ddp", "tuner.train.parallel.strategy:Replicas"),
    DeviceStrategy("pipeline", "tuner.train.parallel.pipeline:Pipeline", whole_batches=True),
    DeviceStrategy("dp", "tuner.train.parallel.one_process:OneProcess", process_per_device=False),
    DeviceStrategy("balanced_dp", "tuner.train.parallel.one_process:BalancedOneProcess", process_per_device=False),
)
STRATEGIES = {strategy.name: strategy for strategy in TABLE}
