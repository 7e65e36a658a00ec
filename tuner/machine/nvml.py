"""NVIDIA GPUs through NVML, the driver's management library: neither CUDA nor torch is loaded.

https://docs.nvidia.com/deploy/nvml-api/; CUDA_VISIBLE_DEVICES as the CUDA programming guide describes it.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

WSL_LIBRARY = Path("/usr/lib/wsl/lib/libnvidia-ml.so.1")  # where Windows puts it; the loader may not look there
COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive_process"}

T = TypeVar("T")
U = TypeVar("U")


class NvmlUnavailableError(Exception):
    """NVML can't be asked here; the message says why."""


@dataclass(frozen=True)
class GpuProcess:
    """The memory that one process uses on a GPU; NaN if the driver doesn't say."""

    pid: int
    used_bytes: float


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG instance of one, that CUDA programs may use.

    Attributes:
        index: NVML's number of the physical GPU, by its place on the bus; CUDA's numbers may differ
        uuid: "GPU-…" or "MIG-…", which CUDA_VISIBLE_DEVICES takes
        memory_bytes: total memory; NaN if the driver doesn't say, as for memory shared with the CPU
        used_bytes: memory used by all programs; NaN if the driver doesn't say
        utilisation: share of the last second or less in which it was busy; NaN for MIG instances
        capability: compute capability, (9, 0) for sm_90
        driver: version, as "580.65.06"
        cuda: newest CUDA version that the driver can run, as (13, 0)
        mig: whether it is a MIG instance
        compute_mode: "default", "exclusive_process" or "prohibited"; "unknown" where the driver doesn't tell
        processes: processes that compute on it, as far as this user may see them
    """

    index: int
    uuid: str
    name: str
    memory_bytes: float
    used_bytes: float
    utilisation: float
    capability: tuple[int, int]
    driver: str
    cuda: tuple[int, int]
    mig: bool
    compute_mode: str
    processes: tuple[GpuProcess, ...]

    @property
    def free_bytes(self) -> float:
        """Memory that nobody uses now; NaN if unknown."""
        return self.memory_bytes - self.used_bytes


def read_gpus(library: Any = None, environment: Mapping[str, str] | None = None) -> tuple[Gpu, ...]:
    """The GPUs that a program started now could use, in the order of CUDA_VISIBLE_DEVICES; none without NVML.

    For a GPU that MIG divides, its instances; a CUDA process uses one of them, the first unless CUDA_VISIBLE_DEVICES
    names another.

    Args:
        library: an object with the functions of `pynvml`
        environment: has CUDA_VISIBLE_DEVICES; by default this process's
    """
    try:
        return ask_gpus(library, environment)
    except NvmlUnavailableError:
        return ()


def ask_gpus(library: Any = None, environment: Mapping[str, str] | None = None) -> tuple[Gpu, ...]:
    """Like `read_gpus`, but raises NvmlUnavailableError if NVML can't be asked."""
    variables = os.environ if environment is None else environment
    with _opened(library) as nvml:
        devices = _visible(_devices(nvml), variables.get("CUDA_VISIBLE_DEVICES"))
        return tuple(_gpu(nvml, device) for device in devices)


def cuda_numbers_agree(library: Any = None, environment: Mapping[str, str] | None = None) -> bool:
    """Whether CUDA numbers GPUs as NVML does, by their place on the bus: it was told to, or all are alike.

    Otherwise CUDA begins with the fastest, and only UUIDs name the same GPU for both.
    """
    order = (os.environ if environment is None else environment).get("CUDA_DEVICE_ORDER")
    return order == "PCI_BUS_ID" or len({gpu.name for gpu in read_gpus(library, {})}) < 2


class GpuMonitor:
    """One GPU's utilisation and memory over time; what NVML can't say is NaN.

    Raises NvmlUnavailableError if NVML can't be asked, or knows no GPU of that `uuid`.
    """

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._nvml = _open(library)
        self._seen = 0
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception as error:
            raise NvmlUnavailableError(f"NVML knows no GPU {uuid} ({error})") from error

    def utilisation(self) -> float:
        """Mean share of busy time since the last call, by all programs."""
        return _value(self._mean_of_samples, math.nan)

    def memory_bytes(self) -> float:
        """Used on the whole GPU."""
        return _value(lambda: float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used), math.nan)

    def _mean_of_samples(self) -> float:
        nvml = self._nvml
        _, samples = nvml.nvmlDeviceGetSamples(self._handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._seen)
        new = [sample for sample in samples if sample.timeStamp > self._seen]
        if not new:
            return _busy_now(nvml, self._handle)
        self._seen = max(sample.timeStamp for sample in new)
        return sum(float(sample.sampleValue.uiVal) for sample in new) / len(new) / 100


# The library


def _open(library: Any) -> Any:
    """NVML initialised."""
    try:
        nvml = library or _load()
        nvml.nvmlInit()
    except Exception as error:  # the library is missing, the driver isn't loaded, or their versions don't match
        raise NvmlUnavailableError(f"NVML can't be asked: {error}") from error
    return nvml


def _load() -> Any:
    import pynvml

    if WSL_LIBRARY.exists():  # once loaded, it is found by its name
        with suppress(OSError):
            ctypes.CDLL(str(WSL_LIBRARY), mode=ctypes.RTLD_GLOBAL)
    return pynvml


@contextmanager
def _opened(library: Any) -> Iterator[Any]:
    nvml = _open(library)
    try:
        yield nvml
    finally:
        with suppress(Exception):
            nvml.nvmlShutdown()


def _value(read: Callable[[], T], otherwise: U) -> T | U:
    """NVML's value, or `otherwise` if this card, driver or container doesn't provide it."""
    try:
        return read()
    except Exception:
        return otherwise


# Devices, and which of them are visible


@dataclass(frozen=True)
class _Device:
    """A physical GPU, or one MIG instance of it; `old_name` is the instance's name before driver 470."""

    handle: Any
    whole: Any
    index: int
    uuid: str
    mig: bool = False
    old_name: str = ""


def _devices(nvml: Any) -> list[list[_Device]]:
    """Each GPU that isn't divided, and the MIG instances of others."""
    count = _value(nvml.nvmlDeviceGetCount, 0)
    found = [_value(partial(_parts, nvml, index), None) for index in range(count)]
    return [parts for parts in found if parts]


def _parts(nvml: Any, index: int) -> list[_Device]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    whole = _Device(handle, handle, index, nvml.nvmlDeviceGetUUID(handle))
    current, _ = _value(lambda: nvml.nvmlDeviceGetMigMode(handle), (0, 0))
    if not current:
        return [whole]
    slots = range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    instances = [_value(partial(_instance, nvml, whole, slot), None) for slot in slots]
    return [instance for instance in instances if instance is not None]


def _instance(nvml: Any, whole: _Device, slot: int) -> _Device:
    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole.handle, slot)
    numbers = nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)
    old_name = f"MIG-{whole.uuid}/{numbers[0]}/{numbers[1]}"
    return _Device(handle, whole.handle, whole.index, nvml.nvmlDeviceGetUUID(handle), mig=True, old_name=old_name)


def _visible(devices: list[list[_Device]], visible: str | None) -> list[_Device]:
    """Devices named by CUDA_VISIBLE_DEVICES, up to the first unknown name; none at all if one is repeated."""
    if visible is None:
        return [part for parts in devices for part in parts]
    chosen: list[_Device] = []
    for name in visible.split(","):
        device = _named(devices, name.strip())
        if device is None:
            break
        if device in chosen:
            return []
        chosen.append(device)
    return chosen


def _named(devices: list[list[_Device]], name: str) -> _Device | None:
    """The device of a number, or of a unique beginning of a UUID; a divided GPU means its first instance."""
    if name.startswith("MIG-"):
        return _only([part for parts in devices for part in parts if part.mig and _fits(part, name)])
    if name.startswith("GPU-"):
        return _only([parts[0] for parts in devices if _whole_uuid(parts[0]).startswith(name)])
    number = re.match(r"\+?\d+", name)
    position = int(number.group()) if number else len(devices)
    return devices[position][0] if position < len(devices) else None


def _fits(part: _Device, name: str) -> bool:
    return part.uuid.startswith(name) or part.old_name == name


def _whole_uuid(part: _Device) -> str:
    return part.old_name.removeprefix("MIG-").split("/")[0] if part.mig else part.uuid


def _only(found: list[_Device]) -> _Device | None:
    return found[0] if len(found) == 1 else None


# What NVML says of one


def _gpu(nvml: Any, device: _Device) -> Gpu:
    handle = device.handle
    memory = _value(lambda: nvml.nvmlDeviceGetMemoryInfo(handle), None)
    version = _value(nvml.nvmlSystemGetCudaDriverVersion_v2, 0)
    return Gpu(
        index=device.index,
        uuid=device.uuid,
        name=_value(lambda: nvml.nvmlDeviceGetName(handle), "unknown"),
        memory_bytes=math.nan if memory is None else float(memory.total),
        used_bytes=math.nan if memory is None else float(memory.used),
        utilisation=_value(lambda: _busy_now(nvml, handle), math.nan),
        capability=_value(lambda: nvml.nvmlDeviceGetCudaComputeCapability(device.whole), (0, 0)),
        driver=_value(nvml.nvmlSystemGetDriverVersion, "unknown"),
        cuda=(version // 1000, version % 1000 // 10),
        mig=device.mig,
        compute_mode=COMPUTE_MODES.get(_value(lambda: nvml.nvmlDeviceGetComputeMode(device.whole), -1), "unknown"),
        processes=_value(lambda: _processes(nvml, handle), ()),
    )


def _busy_now(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(process.pid, math.nan if process.usedGpuMemory is None else float(process.usedGpuMemory))
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    )
