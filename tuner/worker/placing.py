"""The host, the process and the devices on which this worker runs a trial."""

from __future__ import annotations

import os
import platform
from functools import cache

from tuner.history.placement import Placement
from tuner.machine.hardware import NO_GPUS
from tuner.machine.nvml import Gpu, cuda_numbers_agree, read_gpus
from tuner.worker.assignment import Assignment


def visible_gpus(assignment: Assignment) -> dict[str, str]:
    """Environment variables that show a process the trial's GPUs alone; none if Ray has set them.

    Ray leaves all GPUs visible to a worker that asked for none. CUDA reads this when it is initialised.
    """
    if assignment.device is not None:
        return {"CUDA_VISIBLE_DEVICES": assignment.device}
    return {} if assignment.gpus else NO_GPUS


def placement_here(assignment: Assignment) -> Placement:
    """Where the trial of this assignment runs, if this process runs it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if assignment.gpus else None
    gpus = _gpus(visible) if assignment.gpus else ()
    names = [gpu.name for gpu in gpus]
    devices, together = _devices(assignment, gpus, visible), 1 + len(assignment.others)
    return Placement(platform.node(), os.getpid(), devices, names, together)


def _devices(assignment: Assignment, gpus: tuple[Gpu, ...], visible: str | None) -> list[str]:
    if assignment.placement == "spread":
        count, kind = (assignment.gpus, "GPU") if assignment.gpus else (assignment.cpus, "CPU")
        return [f"{_counted(count, kind)} of several nodes"]
    if not assignment.gpus:
        return [_counted(assignment.cpus, "CPU")]
    if gpus:
        return [gpu.uuid if gpu.mig else f"cuda:{gpu.index}" for gpu in gpus]
    return [f"cuda:{name.strip()}" for name in visible.split(",")] if visible else [_counted(assignment.gpus, "GPU")]


def _counted(number: float, kind: str) -> str:
    return f"{number:g} {kind}{'' if number == 1 else 's'}"


@cache
def _gpus(visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that this process sees, none if it isn't certain which; found only once: trials don't wait for it."""
    by_uuid = visible is not None and visible.startswith(("GPU-", "MIG-"))
    if not by_uuid and not cuda_numbers_agree():
        return ()
    return read_gpus(environment={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
