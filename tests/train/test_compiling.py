import gc
import os
import subprocess
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tuner.train import EpochResult, Trainer
from tuner.train.capture import COMPILED
from tuner.train.compiling import CompiledNetwork, Forward
from tuner.train.stepping import Stepping
from tuner.trial import ImageClassifier

CPU = torch.device("cpu")


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        return images


def failing(module: nn.Module, error: Exception) -> Forward:
    def forward(images: Tensor) -> Tensor:
        raise error

    return forward


def test_batches_of_another_size_go_through_the_plain_network() -> None:
    module = Network()
    network = CompiledNetwork(module, CPU, batch_size=4, compiled=lambda _: lambda images: images)
    for size in (4, 3, 4):
        network(torch.zeros(size, 1))
    assert module.sizes == [3]


@pytest.mark.parametrize("when", ["building", "running"])
def test_what_fails_is_never_tried_again(when: str) -> None:
    error, tries = RuntimeError("Failed to find a working triton installation\nand so on"), []

    def compiled(module: nn.Module) -> Forward:
        tries.append(1)
        if when == "building":
            raise error
        return failing(module, error)

    module = Network()
    network = CompiledNetwork(module, CPU, batch_size=4, compiled=compiled)
    for _ in range(3):
        network(torch.zeros(4, 1))
    assert (network.failure, len(tries), module.sizes) == (error, 1, [4, 4, 4])


def test_memory_that_runs_out_is_left_to_the_step() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory")
    network = CompiledNetwork(Network(), CPU, batch_size=4, compiled=partial(failing, error=error))
    with pytest.raises(torch.OutOfMemoryError):
        network(torch.zeros(4, 1))
    assert network.failure is None


# Within a trial


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def by(compiled: Callable[[nn.Module], Forward]) -> None:
        monkeypatch.setattr("tuner.train.assembly.Stepping", partial(Stepping, compiled=compiled))

    return by


def trainer(trial: ImageClassifier, *, path: str | None = COMPILED, **config: Any) -> Trainer:
    config = {"batch_size": 16, "image_size": 12} | config
    return Trainer(trial, config, epochs=2, seed=0, split_seed=0, step_path=path)


def statistics(running: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in running.module.named_buffers()}


def test_a_really_compiled_network_learns_the_same_and_is_forgotten_at_the_end(
    small: ImageClassifier, compiling: Callable[..., None]
) -> None:
    def result(running: Trainer) -> EpochResult:
        return running.run_epoch()

    expected = result(trainer(small, path=None))
    compiling(lambda module: torch.compile(module, backend="aot_eager"))
    running = trainer(small)
    found = result(running)
    assert (found.step_path, expected.step_path) == ("compiled", "eager")
    assert found.train_loss == pytest.approx(expected.train_loss, rel=1e-4)
    module = weakref.ref(running.module)
    running.close()
    assert running.run_epoch().step_path == "eager"
    del running
    gc.collect()
    assert module() is None


def test_a_backward_pass_that_fails_is_taken_again_without_a_trace(
    small: ImageClassifier, compiling: Callable[..., None]
) -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, logits: Tensor) -> Tensor:
            return logits.clone()

        @staticmethod
        def backward(context: Any, *gradients: Tensor) -> Tensor:
            raise RuntimeError("a kernel is missing\nand so on")

    plain = trainer(small, path=None)
    plain.train(2)
    compiling(lambda module: lambda images: Failing.apply(module(images)))
    running = trainer(small)
    running.train(2)
    expected = statistics(plain)
    assert all(torch.equal(value, expected[name]) for name, value in statistics(running).items())
    assert running.notes[-1] == "steps are no longer taken with torch.compile: RuntimeError: a kernel is missing"
    assert running.broken == "taking a trial's steps with torch.compile failed (RuntimeError: a kernel is missing)"
    assert running.run_epoch().step_path == "eager"


def test_memory_that_runs_out_in_the_compiled_pass_costs_the_compiled_pass_alone(
    small: ImageClassifier, compiling: Callable[..., None]
) -> None:
    plain = trainer(small, path=None)
    expected = plain.run_epoch()
    compiling(partial(failing, error=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nand so on")))
    running = trainer(small)
    result = running.run_epoch()
    assert (result.micro_batch_size, result.oom_retries, result.step_path) == (16, 1, "eager")
    assert (result.train_loss, result.validation.loss) == (expected.train_loss, expected.validation.loss)
    assert running.notes[-1] == (
        "steps are no longer taken with torch.compile: CUDA out of memory. Tried to allocate 2 GiB"
    )
    assert running.broken is not None


def compilers_of(process: int) -> int:
    listed = subprocess.run(
        ["ps", "-ww", "--no-headers", "-o", "cmd", "--ppid", str(process)], capture_output=True, text=True, check=True
    )
    return listed.stdout.count("compile_worker")


def test_processes_that_compile_end_with_the_trial() -> None:
    def compiled(module: nn.Module) -> Forward:
        from torch._inductor.async_compile import AsyncCompile

        AsyncCompile.process_pool()  # as inductor does where there is more than a kernel to compile
        return module

    network = CompiledNetwork(Network(), CPU, batch_size=4, compiled=compiled)
    network(torch.zeros(4, 1))
    assert compilers_of(os.getpid()) > 0
    network.release()
    assert compilers_of(os.getpid()) == 0
