"""Checks that train: a few steps of a real trial, on the CPU or a GPU."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.doctor.checks import DRIVER, Finding, Subject, failed, none_here, notice, ok
from tuner.errors import TrialDiverged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from tuner.train import Trainer

STEPS = 5
SAVED_AFTER = 3
IMAGES, BATCH, PIXELS, CLASSES = 80, 16, 32, 4
ALLOWED_DRIFT = 0.05  # relative to the last steps' length: a GPU adds in another order each time
ROOM_BYTES = 256 * 2**20  # that the forced limit leaves
TOO_MUCH_BYTES = 2**31


def fp32(subject: Subject) -> Finding:
    """Five steps in single precision."""
    return _steps(subject, "fp32")


def bf16(subject: Subject) -> Finding:
    """Five steps in bfloat16, which cards before sm_80 only emulate."""
    import torch

    if subject.device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return none_here("none here: this GPU only emulates bfloat16, which trials refuse")
    return _steps(subject, "bf16")


def fp16(subject: Subject) -> Finding:
    """Five steps in half precision, gradients scaled."""
    return _steps(subject, "fp16")


def resume(subject: Subject) -> Finding:
    """A trial that is saved and continued by another process ends like the uninterrupted one."""
    drifts = {optimizer: _drift(subject, optimizer) for optimizer in ("sgd", "adam", "adamw")}
    allowed = ALLOWED_DRIFT if subject.device == "cuda" else 0.0
    bad = {optimizer: drift for optimizer, drift in drifts.items() if not drift <= allowed}
    if bad:
        told = ", ".join(f"{drift:.1%} with {optimizer}" for optimizer, drift in bad.items())
        said = f"a trial that goes on from its checkpoint must end as without a break, got differences of {told}"
        return failed(said, "use scheduler=NoEarlyStopping(), and tell the developers")
    return ok(f"trials go on from checkpoints as without a break ({', '.join(drifts)})")


def memory(subject: Subject) -> Finding:
    """Memory that runs out is recognised, and training goes on afterwards."""
    from tuner.train.memory.errors import is_out_of_memory

    running = trainer(subject.device)
    running.train(1)
    with _limited(subject.device):
        try:
            _take(subject.device, TOO_MUCH_BYTES)
        except Exception as error:
            if not is_out_of_memory(error):
                said = f"memory that ran out wasn't recognised ({type(error).__name__}: {error})"
                return failed(said.splitlines()[0], DRIVER)
        else:
            return notice("a limit of memory isn't kept here", "give each trial a whole GPU")
    running.train(1)
    return ok(f"{TOO_MUCH_BYTES / 2**30:.0f} GiB beyond a limit were refused, and training went on")


def two_processes(subject: Subject) -> Finding:
    """Two processes add up a tensor, like those of one trial on two devices."""
    import torch

    if subject.device == "cuda" and torch.cuda.device_count() < 2:
        return none_here("none here: one GPU")
    backend = "nccl" if subject.device == "cuda" else "gloo"
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        answers = fork.SimpleQueue()
        each = [fork.Process(target=_add_up, args=(rank, backend, f"{folder}/store", answers)) for rank in range(2)]
        for process in each:
            process.start()
        for process in each:
            process.join()
    if any(process.exitcode for process in each):
        return notice(f"two processes can't work together through {backend}", "use one device for a trial")
    sums = {answers.get() for _ in each}
    return (
        ok(f"two processes work together through {backend}")
        if sums == {3.0}
        else failed(f"{backend} adds up wrongly", DRIVER)
    )


def trainer(device: str, **config: Any) -> Trainer:
    """A trial of five steps to an epoch, on noise: a ResNet18 on a GPU, a smaller network on the CPU."""
    from tuner.train import Trainer
    from tuner.trial import ImageClassifier

    trial = ImageClassifier(_noise, "resnet18" if device == "cuda" else _small_network, weights=None)
    return Trainer(trial, {"lr": 1e-3, "batch_size": BATCH} | config, epochs=1, device=device)


def _noise() -> tuple[Any, Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, 3, PIXELS, PIXELS), generator=generator, dtype=torch.uint8)
    split = images, torch.arange(IMAGES) % CLASSES
    return split, split, split


def _small_network(config: dict[str, Any]) -> nn.Module:
    from torch import nn

    convolutions = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2)
    return nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))


def _steps(subject: Subject, precision: str) -> Finding:
    try:
        result = trainer(subject.device, precision=precision).run_epoch()
    except TrialDiverged as error:
        return failed(str(error), DRIVER)
    return ok(f"{STEPS} steps, loss {result.train_loss:.2f}")


def _drift(subject: Subject, optimizer: str) -> float:
    """The distance between the two results, as a share of the distance that the steps after the checkpoint moved."""
    start = partial(trainer, subject.device, optimizer=optimizer)
    whole = start()
    whole.train(SAVED_AFTER)
    middle = _weights(whole)
    with tempfile.TemporaryDirectory() as folder:
        whole.save(Path(folder))
        whole.train(STEPS - SAVED_AFTER)
        gone_on = start()
        gone_on.load(Path(folder))
    gone_on.train(STEPS - SAVED_AFTER)
    end = _weights(whole)
    return float((_weights(gone_on) - end).norm() / (end - middle).norm())


def _weights(running: Trainer) -> Tensor:
    import torch

    return torch.cat([parameter.detach().double().flatten().cpu() for parameter in running.module.parameters()])


@contextmanager
def _limited(device: str) -> Iterator[None]:
    """Limit the GPU's memory to what torch holds and a little more; on the CPU the address space."""
    if device != "cuda":
        before = resource.getrlimit(resource.RLIMIT_AS)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + ROOM_BYTES, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        return
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + ROOM_BYTES) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def _take(device: str, size_bytes: int) -> None:
    import torch

    torch.empty(size_bytes, dtype=torch.uint8, device=device).fill_(1)


def _add_up(rank: int, backend: str, store: str, answers: Any) -> None:
    import torch
    from torch import distributed

    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}  # within this machine
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    with torch.cuda.device(device) if backend == "nccl" else nullcontext():
        distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
        number = torch.full((1024,), float(rank + 1), device=device)
        distributed.all_reduce(number)
        answers.put(float(number.mean()))
        distributed.destroy_process_group()
