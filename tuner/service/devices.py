"""The devices of this machine that drivers get, and how busy they are."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.machine.hardware import this_machine
from tuner.machine.nvml import Gpu, read_gpus
from tuner.service.model import EXTERNAL, Device, DeviceUse, SubmittedStudy

_STAT = Path("/proc/stat")


def devices_here(cpus: int | None = None, gpus: int | None = None) -> tuple[Device, ...]:
    """The GPUs and CPUs that this process may use; at most so many of each kind."""
    machine = this_machine()
    numbers = sorted(os.sched_getaffinity(0))[: machine.cpus][:cpus]
    named = [Device("gpu", index, gpu.uuid) for index, gpu in _numbered(read_gpus())]
    found = named or [Device("gpu", index) for index in range(machine.gpus)]
    return (*found[:gpus], *(Device("cpu", number) for number in numbers))


def devices_of_cluster(cpus: int, gpus: int) -> tuple[Device, ...]:
    """Numbered devices of a cluster; which real device a trial gets is decided by the cluster."""
    return (*(Device("gpu", index) for index in range(gpus)), *(Device("cpu", index) for index in range(cpus)))


def slots(count: int) -> tuple[Device, ...]:
    """`count` places for searches whose trials run elsewhere."""
    return tuple(Device(EXTERNAL, index) for index in range(count))


class DeviceWatch:
    """How busy devices are: GPUs by their driver, CPUs since the last call; may be called from any thread."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int]] = {}
        self._looking = threading.Lock()

    def uses(
        self, devices: Sequence[Device], holders: Sequence[SubmittedStudy], trials: Mapping[str, str]
    ) -> list[DeviceUse]:
        """Each device with the study that has it; `trials` are the running trials by the device's name in their run."""
        owners = {(device.kind, device.index): study for study in holders for device in study.devices}
        with self._looking:
            busy = {"cpu": self._cpus(), "gpu": _gpus() if any(one.kind == "gpu" for one in devices) else {}}
        return [_use(device, owners.get((device.kind, device.index)), busy[device.kind], trials) for device in devices]

    def _cpus(self) -> dict[int, float]:
        """For each CPU the share of busy time since the last call; proc(5)."""
        now = _cpu_times()
        found = {}
        for number, (busy, whole) in now.items():
            busy_before, whole_before = self._before.get(number, (0, 0))
            if whole > whole_before:
                found[number] = (busy - busy_before) / (whole - whole_before)
        self._before = now
        return found


def _use(
    device: Device, study: SubmittedStudy | None, busy: Mapping[int, float], trials: Mapping[str, str]
) -> DeviceUse:
    number, user = (None, None) if study is None else (study.id, study.user)
    trial = (trials.get(f"cuda:{device.index}") or trials.get(device.name)) if device.kind == "gpu" else None
    return DeviceUse(device, number, user, trial, busy.get(device.index))


def _gpus() -> dict[int, float]:
    return {index: gpu.utilisation for index, gpu in _numbered(read_gpus()) if not math.isnan(gpu.utilisation)}


def _numbered(gpus: Sequence[Gpu]) -> list[tuple[int, Gpu]]:
    """The GPUs by their numbers on this machine, unless several are parts of one."""
    return list(enumerate(gpus)) if any(gpu.mig for gpu in gpus) else [(gpu.index, gpu) for gpu in gpus]


def _cpu_times() -> dict[int, tuple[int, int]]:
    """Busy and whole time of each CPU, in clock ticks."""
    try:
        lines = _STAT.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, *values = line.split()
        if name.startswith("cpu") and name[3:].isdecimal():
            times = list(map(int, values[:8]))  # user, nice, system, idle, iowait, irq, softirq, steal
            found[int(name[3:])] = (sum(times) - times[3] - times[4], sum(times))
    return found
