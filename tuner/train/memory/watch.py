"""Memory and device use of a trial, epoch by epoch, and memory that leaks."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tuner.errors import TrialOutOfMemory
from tuner.machine.nvml import GpuMonitor
from tuner.train.memory.device import capacity_bytes
from tuner.train.memory.errors import SMALLER_MODEL

WARM_UP = 2  # epochs in which caches and optimizer states reach their size
LEAKING = 5  # epochs in a row that memory must grow in
LEAST_BYTES, LEAST_SHARE = 2**19, 0.001  # the least growth per epoch that counts
STEADY = 0.25  # smallest growth divided by the largest: a leak adds about the same in every epoch
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Usage:
    """One epoch's use of memory and device; NaN for what can't be known here.

    Attributes:
        memory_peak_bytes: the most GPU memory that torch held within the epoch, but for what it gave back to the GPU;
            on the CPU the process's resident set
        memory_bytes: the same at the epoch's end
        memory_reserved_bytes: what torch then keeps of the GPU, in use or not, so that no other process can have it
        device_utilisation: share of the time in which the GPU was busy, with any program's work
        device_memory_bytes: used on the whole GPU at the epoch's end
    """

    memory_peak_bytes: float
    memory_bytes: float
    memory_reserved_bytes: float = math.nan
    device_utilisation: float = math.nan
    device_memory_bytes: float = math.nan


class GrowthDetector:
    """Tells a leak from caches that fill: a leak grows by about the same amount in each of the last five epochs."""

    def __init__(self) -> None:
        self._sizes: list[float] = []

    def add(self, size: float) -> None:
        """Add the bytes held at the same point of one more epoch."""
        self._sizes.append(size)

    def rate(self) -> float | None:
        """Leaked bytes per epoch, None if memory doesn't leak."""
        sizes = self._sizes[WARM_UP:][-LEAKING - 1 :]
        growth = [after - before for before, after in itertools.pairwise(sizes)]
        if len(growth) < LEAKING or min(growth) < max(LEAST_BYTES, LEAST_SHARE * sizes[-1]):
            return None
        return median(growth) if min(growth) >= STEADY * max(growth) else None


class MemoryWatch:
    """Measures each epoch between `start_epoch` and `end_epoch`; of several GPUs that this process drives the fullest.

    `device_utilisation` and `device_memory_bytes` are those of `device`.
    """

    def __init__(self, device: torch.device, gpus: int = 1) -> None:
        self.device, self._each = device, [device] if gpus == 1 else list(range(gpus))
        self._growth = GrowthDetector()
        self._epochs, self._highest = 0, 0.0
        self._gpu = _monitor(device)

    def start_epoch(self) -> None:
        """Begin to measure the peak."""
        if self.device.type == "cuda":
            for each in self._each:
                torch.cuda.reset_peak_memory_stats(each)
        else:
            _reset_resident_peak()
        if self._gpu is not None:
            self._gpu.utilisation()

    def end_epoch(self, *, replayed: bool = False) -> Usage:
        """The memory and device use of the epoch.

        `replayed` steps allocate nothing: their activations are in memory of the recording, which was made in an
        earlier epoch; its peak was measured then.
        """
        reserved = math.nan
        if self.device.type == "cuda":
            peak = float(max(map(torch.cuda.max_memory_allocated, self._each)))
            held = float(max(map(torch.cuda.memory_allocated, self._each)))
            reserved = float(max(map(torch.cuda.memory_reserved, self._each)))
            # More than is kept was only borrowed: by cuDNN, when it tries its algorithms, 2.4 GB on an H200.
            peak = min(peak, reserved)
        else:
            peak, held = _resident("VmHWM"), _resident("VmRSS")
        self._highest = max(peak, self._highest) if replayed else peak
        peak = self._highest
        self._epochs += 1
        self._growth.add(held)
        if self._gpu is None:
            return Usage(peak, held, reserved)
        return Usage(peak, held, reserved, self._gpu.utilisation(), self._gpu.memory_bytes())

    @property
    def leak(self) -> str | None:
        """A sentence for the user once memory grows from epoch to epoch, else None."""
        rate = self._growth.rate()
        if rate is None:
            return None
        return (
            f"memory grows by {rate / 1e6:.1f} MB per epoch (seen in epochs {self._epochs - LEAKING} to "
            f"{self._epochs}); probably tensors are stored with their autograd graph: "
            "store loss.item() or loss.detach() instead of loss"
        )


def _monitor(device: torch.device) -> GpuMonitor | None:
    """The monitor of the GPU by its UUID, because CUDA_VISIBLE_DEVICES changes numbers; None without NVML."""
    if device.type != "cuda":
        return None
    for kind in ("GPU", "MIG"):
        with suppress(Exception):  # no NVML, or a torch without UUIDs
            return GpuMonitor(f"{kind}-{torch.cuda.get_device_properties(device).uuid}")
    return None


@contextmanager
def explained(watch: MemoryWatch, config: Mapping[str, Any]) -> Iterator[None]:
    """Add to TrialOutOfMemory how much was held, the device's capacity, and the configuration."""
    try:
        yield
    except TrialOutOfMemory as error:
        held, there = watch.end_epoch().memory_peak_bytes, capacity_bytes(watch.device)
        settings = " ".join(f"{name}={value}" for name, value in config.items())
        fix = "" if error.remedy else f"; {SMALLER_MODEL}"
        raise TrialOutOfMemory(
            f"{error}; the trial used up to {held / 1e9:.2f} of {there / 1e9:.2f} GB, "
            f"with {settings or 'defaults'}{fix}",
            error.remedy,
        ) from error


def _resident(name: str) -> float:
    """A line of the process's status in bytes: VmRSS now, VmHWM the peak; NaN if there is no /proc."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return math.nan
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith(name)), math.nan)


def _reset_resident_peak() -> None:
    try:
        with os.fdopen(os.open(CLEAR, os.O_WRONLY), "w") as file:
            file.write("5")
    except OSError:  # then the peak is that since the process began
        return
