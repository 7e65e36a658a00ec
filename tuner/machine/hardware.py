"""The CPUs, GPUs and memory that this machine has for trials, found without torch, Ray and CUDA."""

from __future__ import annotations

import itertools
import os
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tuner.machine.nvml import NvmlUnavailableError, ask_gpus, read_gpus

KFD = Path("/sys/class/kfd/kfd/topology/nodes")  # folder of AMD's kernel driver
MPS_PIPES = "/tmp/nvidia-mps"  # where CUDA looks for the control daemon unless MPS_VARIABLE says otherwise
MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
MPS_PROGRAM = "nvidia-cuda-mps-control"
NO_GPUS = {"CUDA_VISIBLE_DEVICES": ""}  # environment of a process on the CPU, which would hold memory on a GPU it sees
NVML_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # in which CUDA too then numbers GPUs, and not the fastest first
DEVICE_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # of NVIDIA's driver, and of WSL2


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
    """The container's CPU quota in whole CPUs (cgroup v2, then v1), None if there is none."""
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
    return len(gpu_names())


def gpu_names() -> tuple[str, ...]:
    """The GPUs that this process may use: of NVIDIA's each one's own number."""
    return _gpu_names(_visible("CUDA_VISIBLE_DEVICES"), _visible("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))


def gpu_source() -> str:
    """Where the count of GPUs comes from, for the user."""
    try:
        drivers = {gpu.driver for gpu in ask_gpus()}
    except NvmlUnavailableError as error:
        amd = _amd_gpus()
        return f"{KFD} (AMD), {len(amd)} in all" if amd else f"no GPU is seen: {error}{_left_over()}"
    return f"NVML, driver {drivers.pop()}" if drivers else "NVML, which shows none to this process"


def divided_gpus() -> str | None:
    """The CUDA_VISIBLE_DEVICES that is needed if MIG divides a GPU: otherwise CUDA shows a process only one instance.

    None if it is set already, or there are no instances.
    """
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return None
    gpus = read_gpus()
    return ",".join(gpu.uuid for gpu in gpus) if any(gpu.mig for gpu in gpus) else None


def mps_runs(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether NVIDIA's MPS serves CUDA programs that are started now: its pipe is where they look for it."""
    return (Path(environment.get(MPS_VARIABLE) or MPS_PIPES) / "control").exists()


@cache
def _gpu_names(nvidia: str | None, amd: str | None) -> tuple[str, ...]:
    """Names of the GPUs that a program may use; NVML needs a second if no other process keeps the driver loaded."""
    try:
        return tuple(
            gpu.uuid for gpu in ask_gpus(environment={} if nvidia is None else {"CUDA_VISIBLE_DEVICES": nvidia})
        )
    except NvmlUnavailableError:
        names, visible = _amd_gpus(), amd if amd is not None else nvidia  # ROCm reads CUDA's variable too
    if visible is None:
        return names
    chosen = [name.strip() for name in visible.split(",")]
    return tuple(itertools.takewhile(lambda name: name in names or name.startswith("GPU-"), chosen))[: len(names)]


def _visible(*variables: str) -> str | None:
    return next((os.environ[name] for name in variables if name in os.environ), None)


def _amd_gpus() -> tuple[str, ...]:
    """Numbers of the AMD GPUs that the kernel's driver knows: nodes with compute units, which CPUs don't have.

    https://docs.kernel.org/gpu/amdgpu, `kfd_topology`
    """
    found = 0
    for properties in sorted(KFD.glob("*/properties")):
        with suppress(OSError):
            found += re.search(r"^simd_count [1-9]", properties.read_text(), re.MULTILINE) is not None
    return tuple(map(str, range(found)))


def _left_over() -> str:
    """A hint about a GPU although none was counted."""
    signs = [str(path) for path in DEVICE_FILES if path.exists()]
    return f"; yet {', '.join(signs)} is there: give this container the driver's libraries too" if signs else ""


def _memory_bytes() -> int:
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
    return min(physical, _container_memory_bytes() or physical)


def _container_memory_bytes() -> int | None:
    """The container's memory limit (cgroup v2, then v1), None if there is none."""
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
