"""The type of matrix products and convolutions, mixed precision through `torch.amp`, and the scaling of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler, autocast
from torch.optim import Optimizer

from tuner.errors import TrialError
from tuner.machine.techniques import allowed
from tuner.train.optimisation.optimizer import begin_state

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """One of tf32, fp32, bf16 and fp16 on a device.

    `tf32` is float32 whose matrix products and convolutions a GPU may round to 10 bits of mantissa, on NVIDIA's from
    compute capability 8.0 (https://docs.pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere); elsewhere, and on the
    CPU, it is `fp32`, which rounds nothing. fp16's gradients are scaled so that small ones don't become zero. A type
    that is switched off for this machine's GPU becomes `tf32` there.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        """Take a precision by its name.

        Raises:
            TrialError: the GPU only emulates bf16, which is slower than float32 there.
        """
        if device.type == "cuda" and name in HALF and not allowed(name):
            name = "tf32"
        if name == "bf16" and device.type == "cuda":
            _check_bf16(device)
        self.name = name
        self._device = device.type
        self._scaler = GradScaler(self._device, enabled=name == "fp16")

    def arithmetic(self) -> AbstractContextManager[object]:
        """Within it, forward passes compute in the type."""
        if self.name not in HALF:
            return nullcontext()
        return autocast(self._device, HALF[self.name])

    @contextmanager
    def kernels(self, *, search: bool = False) -> Iterator[None]:
        """Within it, forward and backward passes on a GPU round float32 as the precision allows, in all threads.

        Args:
            search: let cuDNN try its algorithms for each new shape and keep the fastest
        """
        if self._device != "cuda":
            yield
            return
        tf32, products = self.name != "fp32", torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            with torch.backends.cudnn.flags(enabled=True, benchmark=search, allow_tf32=tf32):
                yield
        finally:
            torch.set_float32_matmul_precision(products)

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradients to the parameters', scaled."""
        self.scaled(loss).backward()  # type: ignore[no-untyped-call]

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        scaled: Tensor = self._scaler.scale(loss)
        return scaled

    def step(self, optimizer: Optimizer, clip_norm: float, summed: Callable[[Tensor], Tensor] | None = None) -> None:
        """One step of the optimizer with gradients unscaled and, unless `clip_norm` is 0, clipped to that norm.

        With fp16 a step whose gradients overflowed is skipped, and the scale lowered.

        Args:
            optimizer: its parameters have gradients
            clip_norm: greatest norm of the whole gradient
            summed: sums a tensor over processes that have other parameters of the same model; None if there are none
        """
        begin_state(optimizer)  # the last allocation, so that a step without enough memory can be repeated
        if clip_norm or summed is not None:
            self._scaler.unscale_(optimizer)
        if summed is not None and self._scaler.is_enabled():
            self._overflow_anywhere(optimizer, summed)
        if clip_norm:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients, foreach=True).to(self._device)
            if summed is not None:
                norm = summed(norm.square()).sqrt()
            torch.nn.utils.clip_grads_with_norm_(parameters, clip_norm, norm, foreach=True)
        self._scaler.step(optimizer)
        self._scaler.update()

    def _overflow_anywhere(self, optimizer: Optimizer, summed: Callable[[Tensor], Tensor]) -> None:
        """Let an overflow in one process count in all, as torch's own `ShardedGradScaler` does, but only on GPUs."""
        noted = self._scaler._per_optimizer_states[id(optimizer)]
        found = sum(noted["found_inf_per_device"].values(), torch.zeros((), device=self._device))
        anywhere = summed(found).clamp_(max=1)  # fused optimizers skip the step if it is exactly 1
        noted["found_inf_per_device"] = {torch.device(self._device): anywhere}

    def forget_step(self, optimizer: Optimizer) -> None:
        """Forget the results of a step that failed half-way, so that it can be repeated."""
        if self._scaler.is_enabled():
            self._scaler._per_optimizer_states.clear()
            for left in ("grad_scale", "found_inf"):  # left on a fused optimizer, the scale would count twice
                optimizer.__dict__.pop(left, None)

    def state(self) -> dict[str, Any]:
        """The scale and its counters as plain data; empty if nothing is scaled."""
        return dict(self._scaler.state_dict())

    def load(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        if state:
            self._scaler.load_state_dict(state)


def _check_bf16(device: torch.device) -> None:
    with torch.cuda.device(device):
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return
    major, minor = torch.cuda.get_device_capability(device)
    raise TrialError(
        "precision='bf16' needs a GPU that computes in it (compute capability 8.0 or newer), got "
        f"{torch.cuda.get_device_name(device)} with {major}.{minor}, which emulates it; use 'fp16' or 'tf32'"
    )
