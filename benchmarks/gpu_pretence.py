"""A GPU for `gpu.py --pretend`: the one that the tests pretend, and stand-ins for what only a real one has.

CUDA graphs compute again (`Repeating`), except that a network with a hook before its forward pass can't be recorded;
`torch.compile` leaves the network as it is; a limit of memory lets no more than `ROOM` images through. Searches run in
other processes, on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tests.train.capture.repeating import Repeating
from tests.train.pretend import pretending
from tuner.train import compiling, stepping
from tuner.train.capture import StaticStep
from tuner.train.capture.recording import Work

ROOM = 4  # images, while memory is limited


@contextmanager
def pretending_all() -> Iterator[None]:
    """Within it `cuda` works, and so do graphs, the compiler and limits of memory."""
    torch.set_num_threads(1)  # rows run beside each other
    with pytest.MonkeyPatch.context() as patch, pretending(), Unpinned():
        patch.setattr(stepping, "CudaGraphRecorder", lambda device: RepeatingUnlessHooked())
        patch.setattr(compiling, "compiled_with_cuda_graphs", lambda module: module)
        patch.setattr(compiling, "release_compiler", lambda: None)
        patch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
        patch.setattr(torch.cuda, "set_per_process_memory_fraction", LimitedRoom())
        yield


class Unpinned(TorchFunctionMode):
    """Tensors are made in ordinary memory: only a GPU's driver pins it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
        return func(*args, **kept)


class RepeatingUnlessHooked(Repeating):
    """Fails to record a network that has a hook, as CUDA does if the hook waits for the GPU."""

    def record(self, work: Work) -> None:
        """See `Recorder.record`."""
        step = getattr(work, "__self__", None)
        if isinstance(step, StaticStep) and step._step._module._forward_pre_hooks:
            raise RuntimeError("operation not permitted when stream is capturing")
        super().record(work)


class LimitedRoom:
    """In place of `torch.cuda.set_per_process_memory_fraction`: memory runs out below the whole."""

    def __init__(self) -> None:
        self._hook: Any = None

    def __call__(self, fraction: float, device: object = None) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook = nn.modules.module.register_module_forward_pre_hook(_allocate) if fraction < 1 else None


def _allocate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if isinstance(module, nn.Conv2d) and len(inputs[0]) > ROOM and torch.is_grad_enabled():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
