"""Checks that only a GPU can pass: its wheel, who shares it, CUDA graphs, torch.compile, asserts, its memory.

Judgements from descriptions of GPUs are tested anywhere; all checks passed on an H200.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from tuner.doctor.checks import DRIVER, OFF, Finding, Subject, failed, none_here, notice, ok
from tuner.doctor.wheels import installed_torch, judge_unmanaged, judge_wheel
from tuner.machine.child_process import call_apart
from tuner.machine.hardware import mps_runs
from tuner.machine.nvml import Gpu, read_gpus

if TYPE_CHECKING:
    from torch import Tensor, nn

REMAINS_BYTES = 64 * 2**20  # of memory that may still be used after the checks
TOLERANCE = 0.02  # for another order of additions, and TF32


def wheel(subject: Subject) -> Finding:
    """Torch's wheel fits driver and card, and torch sees the GPU."""
    build = installed_torch()
    gpus = read_gpus()
    return judge_wheel(gpus[0], build) if gpus else judge_unmanaged(build)


def sharing(subject: Subject) -> Finding:
    """Several trials can share the GPU."""
    gpus = read_gpus()
    if not gpus:
        return none_here("NVML can't be asked")
    return judge_sharing(gpus[0], mps=mps_runs())


def graph(subject: Subject) -> Finding:
    """Steps that were recorded in a CUDA graph and replayed train like eager ones."""
    if subject.device != "cuda":
        return none_here()
    apart = recorded_apart(subject.device)
    if not apart <= TOLERANCE:
        return notice(f"recorded steps train differently from eager ones, by {apart:.1%}", OFF)
    return ok("3 recorded steps train as eager ones do")


def recorded_apart(device: str) -> float:
    """The distance between the results of three replays of a recorded step and of three eager steps, relative to the
    distance that the weights moved.
    """
    images, labels = _batch(device)
    eager, recorded = _network(device), _network(device)
    replay = _recorded_step(recorded, images, labels)
    recorded.load_state_dict(eager.state_dict())  # recording has warmed up by stepping
    optimizer, start = _optimizer(eager), _flat(eager)
    for _ in range(3):
        replay()
        _eager_step(eager, optimizer, images, labels)
    return float((_flat(recorded) - _flat(eager)).norm() / (_flat(eager) - start).norm())


def compiled(subject: Subject) -> Finding:
    """A compiled network gives the losses and gradients of the plain one."""
    import torch

    from tuner.train.compiling import compiled_with_cuda_graphs

    images, labels = _batch(subject.device)
    module = _network(subject.device)
    plain = _gradients(module, module, images, labels)
    on_gpu = subject.device == "cuda"
    forward = compiled_with_cuda_graphs(module) if on_gpu else torch.compile(module, dynamic=False)
    for _ in range(3 if on_gpu else 1):  # the first ones warm up and record
        if on_gpu:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        through = _gradients(module, forward, images, labels)
    apart = float((through - plain).norm() / plain.norm())
    if not apart <= TOLERANCE:
        return notice(f"a compiled network has different gradients, by {apart:.1%}", OFF)
    return ok("a compiled network has the same gradients")


def device_assert(subject: Subject) -> Finding:
    """An assert on the device is recognised, and the process after it can use the GPU."""
    if subject.device != "cuda":
        return none_here()
    if mps_runs():  # https://docs.nvidia.com/deploy/mps, "Error containment"
        return none_here("none here: under MPS it would end whatever else computes on the GPU")
    recognised = call_apart(partial(_trip_assert, subject.device), 30)
    loss = call_apart(partial(_one_loss, subject.device), 30)
    if not recognised:
        return notice("an error that makes the GPU unusable wasn't recognised", "tell the developers")
    if not math.isfinite(loss):
        return failed("the GPU computes nonsense after a device-side assert", DRIVER)
    return ok("after a device-side assert another process goes on")


# Judgements


def judge_sharing(gpu: Gpu, *, mps: bool) -> Finding:
    """Whether several processes may use the GPU."""
    if gpu.compute_mode == "prohibited":
        return failed(f"{gpu.name} is closed to compute", "ask for `nvidia-smi --compute-mode=DEFAULT`")
    if gpu.compute_mode == "exclusive_process" and not mps:
        said = f"{gpu.name} takes one process at a time, as its compute mode is exclusive"
        return notice(said, "give each trial a whole GPU, or ask for MPS or `nvidia-smi --compute-mode=DEFAULT`")
    return ok("by MPS" if mps else "by turns; MPS doesn't run")


def judge_memory(before: Gpu, after: Gpu) -> Finding:
    """Whether the checks released the memory that they used."""
    left = after.used_bytes - before.used_bytes
    if math.isnan(left):
        return none_here("the driver doesn't tell")
    if left <= REMAINS_BYTES:
        return ok("as it was before the checks")
    said = f"{left / 2**20:.0f} MiB more are used than before the checks"
    if {process.pid for process in after.processes} - {process.pid for process in before.processes}:
        return notice(f"{said}, and a new process is there", "look at nvidia-smi")
    return notice(said, "look at nvidia-smi; a process that hangs keeps memory")


# On the device


def _network(device: str) -> nn.Module:
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 4)
    return nn.Sequential(*layers).to(device)


def _batch(device: str) -> tuple[Tensor, Tensor]:
    import torch

    generator = torch.Generator().manual_seed(0)
    return torch.randn(16, 3, 16, 16, generator=generator).to(device), (torch.arange(16) % 4).to(device)


def _optimizer(network: nn.Module) -> Any:
    from torch.optim import SGD

    return SGD(network.parameters(), lr=0.01)


def _eager_step(network: nn.Module, optimizer: Any, images: Tensor, labels: Tensor) -> None:
    from torch.nn.functional import cross_entropy

    optimizer.zero_grad(set_to_none=True)
    cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _recorded_step(network: nn.Module, images: Tensor, labels: Tensor) -> Any:
    """As in https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture."""
    import torch

    optimizer, beside = _optimizer(network), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            _eager_step(network, optimizer, images, labels)
    torch.cuda.current_stream().wait_stream(beside)
    recording = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(recording):
        _eager_step(network, optimizer, images, labels)
    return recording.replay


def _gradients(module: nn.Module, forward: Any, images: Tensor, labels: Tensor) -> Tensor:
    import torch
    from torch.nn.functional import cross_entropy

    module.zero_grad(set_to_none=True)
    cross_entropy(forward(images), labels).backward()  # type: ignore[no-untyped-call]
    found = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return torch.cat([gradient.flatten() for gradient in found]).clone()


def _flat(network: nn.Module) -> Tensor:
    import torch

    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).clone()


def _trip_assert(device: str) -> bool:
    import torch
    from torch.nn.functional import cross_entropy

    from tuner.errors.gpu_errors import context_is_dead, dead_context

    try:
        cross_entropy(torch.zeros(4, 2, device=device), torch.full((4,), 999, device=device))
        torch.cuda.synchronize()
    except Exception as error:
        return context_is_dead(error) and dead_context() is not None
    return False


def _one_loss(device: str) -> float:
    from torch.nn.functional import cross_entropy

    images, labels = _batch(device)
    return float(cross_entropy(_network(device)(images), labels))
