"""`torch.compile` with CUDA graphs, where it was measured to pay."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tuner.techniques import allowed

WARM_UP_STEPS = 5
MEASURED_STEPS = 20
LEAST_GAIN = 1.05  # compiled steps must be so many times faster to be kept
PAYS_AFTER_SECONDS = 120.0  # of plain training ahead; compiling takes up to a minute

Forward = Callable[[Tensor], Tensor]


class Compilation:
    """Finds out, over a trial's first steps, whether a compiled network trains faster, and goes on with what does.

    `begin_step` is called before every step and gives the network to use. Batches of another size than the usual one go
    through the plain network. Whatever goes wrong while compiling switches it off. `note` then says what was found.
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
        self._steps = 0
        self._begun = 0.0
        self._plain_seconds = 0.0
        self._open = (device.type == "cuda" and allowed("compile")) or compiled is not None
        self.note: str | None = None

    @property
    def active(self) -> bool:
        """Whether steps go through the compiled network now."""
        return self._compiled is not None

    def begin_step(self, steps_ahead: int) -> Forward:
        """The network for the step that comes, with so many steps of the trial still ahead."""
        if self._open:
            self._look(steps_ahead)
            self._steps += 1
        return self._module if self._compiled is None else self._guarded

    def _look(self, steps_ahead: int) -> None:
        """Plain steps are measured first, then compiled ones; a measurement waits for the device twice."""
        if self._steps == WARM_UP_STEPS:
            self._begun = self._now()
        elif self._steps == WARM_UP_STEPS + MEASURED_STEPS and self._compiled is None:
            self._plain_seconds = (self._now() - self._begun) / MEASURED_STEPS
            if self._plain_seconds * steps_ahead < PAYS_AFTER_SECONDS:
                self._open = False
                return
            self._start_compiled()
        elif self._steps == WARM_UP_STEPS + MEASURED_STEPS and self._compiled is not None:
            self._judge((self._now() - self._begun) / MEASURED_STEPS)

    def _start_compiled(self) -> None:
        try:
            self._compiled = self._compile(self._module)
        except Exception as error:
            self.give_up(error)
        self._steps = -1  # the step that compiles isn't measured

    def _judge(self, compiled_seconds: float) -> None:
        gain = self._plain_seconds / compiled_seconds
        kept = gain >= LEAST_GAIN
        self.note = (
            f"torch.compile {'makes' if kept else 'would make'} a step {gain:.2f} times as fast "
            f"({1000 * self._plain_seconds:.2f} ms to {1000 * compiled_seconds:.2f} ms), "
            f"and is {'on' if kept else 'off'}"
        )
        self._open = False
        if not kept:
            self._compiled = None

    def _guarded(self, images: Tensor) -> Tensor:
        if self._compiled is None or len(images) != self._batch_size:
            result: Tensor = self._module(images)
            return result
        try:
            if self._device.type == "cuda":
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return self._compiled(images)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.give_up(error)
            plain: Tensor = self._module(images)
            return plain

    def give_up(self, error: Exception) -> None:
        """Go on with the plain network."""
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        self.note = f"torch.compile failed and is off: {type(error).__name__}: {line}"
        self._compiled, self._open = None, False

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def compiled_with_cuda_graphs(module: nn.Module) -> Forward:
    """The module compiled for fixed shapes, its launches recorded once; the module itself stays as it is."""
    forward: Forward = torch.compile(module, mode="reduce-overhead", dynamic=False)
    return forward
