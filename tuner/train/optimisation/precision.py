"""Mixed precision through `torch.amp`: the type of matrix products and convolutions, and the scaling of gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler, autocast
from torch.optim import Optimizer

from tuner.train.optimisation.optimizer import begin_momentum

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """One of fp32, bf16 and fp16 on a device; fp16's gradients are scaled so that small ones don't become zero."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self._device = device.type
        self._scaler = GradScaler(self._device, enabled=name == "fp16")

    def arithmetic(self) -> AbstractContextManager[object]:
        """Within it, forward passes compute in the type."""
        if self.name == "fp32":
            return nullcontext()
        return autocast(self._device, TYPES[self.name])

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradients to the parameters', scaled."""
        self.scaled(loss).backward()  # type: ignore[no-untyped-call]

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        scaled: Tensor = self._scaler.scale(loss)
        return scaled

    def step(self, optimizer: Optimizer, clip_norm: float, summed: Callable[[Tensor], Tensor] | None = None) -> None:
        """One step of the optimizer with gradients unscaled and, unless `clip_norm` is 0, clipped to that norm.

        With fp16 a step whose gradients overflowed is left out, and the scale lowered.

        Args:
            optimizer: whose gradients are there
            clip_norm: greatest norm of the whole gradient
            summed: sums a tensor over the processes that hold other parameters of the same model; None for none
        """
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
        if self._scaler.is_enabled():
            begin_momentum(optimizer)
        self._scaler.step(optimizer)
        self._scaler.update()

    def _overflow_anywhere(self, optimizer: Optimizer, summed: Callable[[Tensor], Tensor]) -> None:
        """Let an overflow in one process count in all; as torch's own `ShardedGradScaler` does on GPUs alone."""
        noted = self._scaler._per_optimizer_states[id(optimizer)]
        found = sum(noted["found_inf_per_device"].values(), torch.zeros((), device=self._device))
        anywhere = summed(found).clamp_(max=1)  # fused optimizers leave the step out where it is exactly 1
        noted["found_inf_per_device"] = {torch.device(self._device): anywhere}

    def forget_step(self) -> None:
        """Forget what a step that failed half-way had come to, so that it can be taken again."""
        if self._scaler.is_enabled():
            self._scaler._per_optimizer_states.clear()

    def state(self) -> dict[str, Any]:
        """Scale and its counters, plain; empty where nothing is scaled."""
        return dict(self._scaler.state_dict())

    def load(self, state: dict[str, Any]) -> None:
        """Go on with what `state` gave."""
        if state:
            self._scaler.load_state_dict(state)
