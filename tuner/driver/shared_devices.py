"""The devices that packed trials share on this machine, and a configuration's memory, estimated by a process with
torch.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError

from tuner.errors import StudyError, describe_error
from tuner.loop.packing import Admission, Device, Packing
from tuner.machine.hardware import NO_GPUS, Machine, mps_runs
from tuner.machine.nvml import Gpu, read_gpus
from tuner.space.values import canonical
from tuner.study.declaration import Study
from tuner.study.resources import MOST_ON_A_GPU
from tuner.trial import MemoryEstimate
from tuner.worker.implementation import implementation_of
from tuner.worker.pickling import pickle_trial
from tuner.worker.study_code import extend_import_path

MIB = 2**20
CUDA_BYTES = 700 * MIB  # of a process: a context (about 500 MB), and workspaces of cuBLAS and cuDNN
PROCESS_BYTES = 700 * MIB  # of a process on the CPU that has torch and Ray
SPARED = 0.05  # of the free memory, left for other programs on the device
LONGEST_SECONDS = 600.0  # for an estimate, which may have to wait until images are decoded


def shared_devices(study: Study, machine: Machine, gpus: Sequence[Gpu] | None = None) -> tuple[Device, ...]:
    """The devices that trials of a packed study share, by default the GPUs that NVML finds; none if trials don't share.

    Raises StudyError if it isn't known how much memory a GPU has.
    """
    packed = study.resources.packed
    if packed is None:
        return ()
    if packed == "cpus":
        return (_all_cpus(machine),)
    found = read_gpus() if gpus is None else gpus
    if not found or any(math.isnan(gpu.free_bytes) for gpu in found):
        raise StudyError(
            "gpus='auto' needs NVML to say how much memory each GPU has, got no answer from it; install the libraries "
            "that come with NVIDIA's driver, or use a number, such as gpus=0.5"
        )
    cpus = study.resources.resolve(gpus_present=len(found), uses_gpu=True).cpu_count
    most = max(1, min(MOST_ON_A_GPU, int(machine.cpus / cpus / len(found))))
    overlaps = mps_runs()
    return tuple(_gpu(gpu, most, overlaps=overlaps) for gpu in found)


def share_name(device: Device) -> str:
    """Ray's resource of which each trial on a GPU has a part, so that it runs on that GPU."""
    return f"tuner-{device.name}"


def shares(devices: Sequence[Device]) -> dict[str, float]:
    """The resources with which Ray is started in addition to CPUs and GPUs."""
    return {share_name(device): 1.0 for device in devices if device.name != "cpu"}


def admission(study: Study, devices: Sequence[Device]) -> Admission | None:
    """The object that says which trial may start where; None if each has a fixed amount. Ray must be connected."""
    return Admission(Packing(devices), MemoryEstimates(study, devices[0])) if devices else None


class MemoryEstimates:
    """How much memory a configuration takes, found by a worker while the driver goes on."""

    def __init__(self, study: Study, device: Device) -> None:
        kind = "cpu" if device.name == "cpu" else "cuda"
        told = pickle_trial(study.declared_trial), list(sys.path)
        self._worker = (
            ray.remote(_Estimating)
            .options(num_cpus=0)
            .remote(*told, study.budget.max_epochs, study.seed, kind, device.memory_bytes)
        )
        self._asked: dict[str, tuple[Any, float]] = {}
        self._known: dict[str, MemoryEstimate] = {}

    def __call__(self, config: dict[str, Any]) -> MemoryEstimate | None:
        """The estimate, None until it is ready; if it can't be known, it says why."""
        key = canonical(config)
        if key in self._known:
            return self._known[key]
        if key not in self._asked:
            self._asked[key] = self._worker.of.remote(config), time.monotonic()
        task, since = self._asked[key]
        found = self._answer(task, time.monotonic() - since)
        if found is not None:
            self._known[key] = found
            del self._asked[key]
        return found

    def _answer(self, task: Any, seconds: float) -> MemoryEstimate | None:
        if not ray.wait([task], timeout=0)[0]:
            late = seconds > LONGEST_SECONDS
            return MemoryEstimate(unknown=f"its memory was not found in {LONGEST_SECONDS:.0f} s") if late else None
        try:
            answer: MemoryEstimate = ray.get(task)
        except RayError as error:
            return MemoryEstimate(unknown=f"the process that finds its memory failed ({describe_error(error)})")
        return answer


class _Estimating:
    """The worker that estimates."""

    def __init__(
        self, pickled: bytes, import_path: list[str], epochs: int, split_seed: int, device: str, free_bytes: float
    ) -> None:
        os.environ.update(NO_GPUS)
        extend_import_path(import_path)
        trial = cloudpickle.loads(pickled)
        self._estimate = implementation_of(trial).memory_estimator(
            trial, epochs=epochs, split_seed=split_seed, device=device, free_bytes=free_bytes
        )

    def of(self, config: dict[str, Any]) -> MemoryEstimate:
        """The estimate for one configuration."""
        return self._estimate(config)


def _gpu(gpu: Gpu, most: int, *, overlaps: bool) -> Device:
    free = (1 - SPARED) * gpu.free_bytes
    if gpu.compute_mode == "exclusive_process" and not overlaps:  # for one process only: MPS's, or another
        most = 1
    return Device(gpu.uuid, gpu.name, gpu.memory_bytes, free, most, process_bytes=CUDA_BYTES, overlaps=overlaps)


def _all_cpus(machine: Machine) -> Device:
    return Device(
        "cpu",
        "CPU",
        machine.memory_bytes,
        max(0.0, (1 - SPARED) * _available_bytes(machine) - PROCESS_BYTES),  # of the estimating process
        most=machine.cpus,
        at_first=machine.cpus,  # a thread for each CPU: more can't run at the same time
        process_bytes=PROCESS_BYTES,
        reports_process=True,
        alone_bytes=machine.memory_bytes,  # others may free what they hold now
    )


def _available_bytes(machine: Machine, system: Path = Path("/")) -> int:
    """Memory of the machine, and of the container, that programs may still take."""
    free = [*_free_in_container(system / "sys/fs/cgroup"), *_free_on_host(system / "proc")]
    return min([machine.memory_bytes, *free])


def _free_on_host(processes: Path) -> list[int]:
    try:
        lines = (processes / "meminfo").read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _free_in_container(groups: Path) -> list[int]:
    """The limit minus what is in use; cached files don't count as in use, because they can be dropped.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files, and the names of v1.
    """
    for limit, used, droppable in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most, now = int((groups / limit).read_text()), int((groups / used).read_text())  # "max" if there is none
            lines = (groups / used).with_name("memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            continue
        dropped = sum(int(value) for name, value in map(str.split, lines) if name == droppable)
        return [max(0, most - now + dropped)]
    return []
