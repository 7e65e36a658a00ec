"""A network through `torch.compile` with CUDA graphs, and what compiling leaves behind in a process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tuner.train.memory.errors import is_out_of_memory

Forward = Callable[[Tensor], Tensor]


class CompiledNetwork:
    """A network that is compiled when the first batch goes through it.

    Batches of another size than the usual one go through the plain network, and so does everything once compiling or
    the compiled code has failed; the caller handles running out of memory.

    Attributes:
        failure: what went wrong, None if nothing did
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        *,
        batch_size: int,
        compiled: Callable[[nn.Module], Forward] | None = None,
    ) -> None:
        self._module, self._device, self._batch_size = module, device, batch_size
        self._compile = compiled or compiled_with_cuda_graphs
        self._compiled: Forward | None = None
        self.failure: Exception | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        if len(images) == self._batch_size and self.failure is None:
            try:
                return self._through_compiled(images)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                self.failure = error
                self._compiled = None
        plain: Tensor = self._module(images)
        return plain

    def _through_compiled(self, images: Tensor) -> Tensor:
        if self._compiled is None:
            self._compiled = self._compile(self._module)
        if self._device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._compiled(images)

    def release(self) -> None:
        """Release the memory and processes of compiling; the network is compiled again if it is used again."""
        if self._compiled is not None:
            self._compiled = None
            release_compiler()


def compiled_with_cuda_graphs(module: nn.Module) -> Forward:
    """The module compiled for fixed shapes, its launches recorded once; the module itself stays as it is."""
    forward: Forward = torch.compile(module, mode="reduce-overhead", dynamic=False)
    return forward


def release_compiler() -> None:
    """Drop all compiled code of this process with its CUDA graphs, and end the processes that compiled it."""
    torch.compiler.reset()
    inductor = sys.modules.get("torch._inductor.async_compile")
    if inductor is not None:
        inductor.shutdown_compile_workers()
