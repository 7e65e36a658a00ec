"""What packed trials share on this machine, and the memory of a configuration, asked of a process that has torch."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError

from tuner.errors import StudyError, describe_error
from tuner.loop.packing import Admission, Device, Packing
from tuner.machine import Machine
from tuner.nvml import Gpu, read_gpus
from tuner.resources import MOST_ON_A_GPU
from tuner.study import Study
from tuner.trial import MemoryEstimate
from tuner.worker.implementation import implementation_of
from tuner.worker.pickling import pickle_trial

MIB = 2**20
CUDA_BYTES = 700 * MIB  # of a process: a context (about 500 MB), and workspaces of cuBLAS and cuDNN
PROCESS_BYTES = 700 * MIB  # of a process on the CPU that has torch and Ray
SPARED = 0.05  # of what is free, for whoever else uses the device
LONGEST_SECONDS = 600.0  # for an estimate, which may have to wait for images to be decoded first
MPS_PIPES = "/tmp/nvidia-mps"  # where CUDA looks for the control daemon unless CUDA_MPS_PIPE_DIRECTORY says otherwise
MPS_PROCESS = "nvidia-cuda-mps"  # as the kernel shortens the name of the daemon and of its server


def shared_devices(study: Study, machine: Machine, gpus: Sequence[Gpu] | None = None) -> tuple[Device, ...]:
    """What the trials of a packed study share, by default the GPUs that NVML finds; none where each has its own.

    Raises StudyError where nobody knows how much memory a GPU has.
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


def mps_runs(environment: Mapping[str, str] = os.environ, processes: Path = Path("/proc")) -> bool:
    """Whether NVIDIA's MPS serves CUDA programs that are started now: its daemon's pipe or process is there."""
    pipes = Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_PIPES)
    return (pipes / "control").exists() or any(_name_of(one) == MPS_PROCESS for one in processes.glob("[0-9]*/comm"))


def share_name(device: Device) -> str:
    """Ray's resource of which each trial on a GPU has a part, so that it comes to that GPU and no other."""
    return f"tuner-{device.name}"


def shares(devices: Sequence[Device]) -> dict[str, float]:
    """What Ray is started with beside CPUs and GPUs."""
    return {share_name(device): 1.0 for device in devices if device.name != "cpu"}


def admission(study: Study, devices: Sequence[Device]) -> Admission | None:
    """Who says which trial may start where; None where each has a fixed amount. Ray must be connected."""
    return Admission(Packing(devices), MemoryEstimates(study, devices[0])) if devices else None


class MemoryEstimates:
    """What memory a configuration takes, found by a worker while the driver goes on."""

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
        """The estimate, None as long as it isn't there; what can't be known says why."""
        key = json.dumps(config, sort_keys=True, default=str)
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
    """The worker."""

    def __init__(
        self, pickled: bytes, import_path: list[str], epochs: int, split_seed: int, device: str, free_bytes: float
    ) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a user's network that looks for a GPU would take memory there
        sys.path.extend(entry for entry in import_path if entry not in sys.path)
        trial = cloudpickle.loads(pickled)
        self._estimate = implementation_of(trial).memory_estimator(
            trial, epochs=epochs, split_seed=split_seed, device=device, free_bytes=free_bytes
        )

    def of(self, config: dict[str, Any]) -> MemoryEstimate:
        """Of one configuration."""
        return self._estimate(config)


def _gpu(gpu: Gpu, most: int, *, overlaps: bool) -> Device:
    free = (1 - SPARED) * gpu.free_bytes
    if gpu.compute_mode == "exclusive_process" and not overlaps:  # the driver lets one process use it, MPS's or another
        most = 1
    return Device(gpu.uuid, gpu.name, gpu.memory_bytes, free, most, process_bytes=CUDA_BYTES, overlaps=overlaps)


def _all_cpus(machine: Machine) -> Device:
    return Device(
        "cpu",
        "CPU",
        machine.memory_bytes,
        max(0.0, (1 - SPARED) * _available_bytes(machine) - PROCESS_BYTES),  # of the process that estimates
        most=machine.cpus,
        at_first=machine.cpus,  # a thread each: more can't be done at the same time
        process_bytes=PROCESS_BYTES,
        reports_process=True,
        alone_bytes=machine.memory_bytes,  # what others hold now they may give back
    )


def _available_bytes(machine: Machine) -> int:
    """Memory of the machine, or container, that programs may still take."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return machine.memory_bytes
    available = (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min(machine.memory_bytes, next(available, machine.memory_bytes))


def _name_of(comm: Path) -> str:
    try:
        return comm.read_text().strip()
    except OSError:  # it has ended
        return ""
