"""What this machine has for trials: CPUs, GPUs and memory, found without torch or Ray."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Machine:
    """CPUs and GPUs that this process may use, and the memory of the host."""

    cpus: int
    gpus: int
    memory_bytes: int
    processor: str

    def record(self) -> dict[str, Any]:
        """The machine as plain data for `run.json`."""
        return asdict(self)


def this_machine() -> Machine:
    """The machine that this process runs on, within its affinity mask, container limits and CUDA_VISIBLE_DEVICES."""
    return Machine(cpus=_cpus(), gpus=_gpus(), memory_bytes=_memory_bytes(), processor=_processor())


def python_environment() -> dict[str, str]:
    """The environment in which another Python process finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _cpus() -> int:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(affinity, _container_cpus() or affinity))


def _container_cpus() -> int | None:
    """The container's CPU quota in whole CPUs (cgroup v2, then v1), None where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text().strip()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return max(1, int(quota) // int(period))


def _gpus() -> int:
    """NVIDIA devices that CUDA programs may see; driver files rather than CUDA, which would take seconds and memory."""
    present = sum(1 for node in Path("/dev").glob("nvidia[0-9]*") if node.name[len("nvidia") :].isdigit())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    return min(present, len([device for device in visible.split(",") if device.strip() not in ("", "-1")]))


def _memory_bytes() -> int:
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
    return min(physical, _container_memory_bytes() or physical)


def _container_memory_bytes() -> int | None:
    """The container's memory limit (cgroup v2, then v1), None where there is none."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(path).read_text())  # "max" where there is no limit
        except (OSError, ValueError):
            continue
    return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
