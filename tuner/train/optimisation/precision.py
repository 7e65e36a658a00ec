"""Mixed precision through `torch.amp`: the type of matrix products and convolutions, and the scaling of gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler, autocast
from torch.optim import Optimizer

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
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self, optimizer: Optimizer, clip_norm: float) -> None:
        """One step of the optimizer with gradients unscaled and, unless `clip_norm` is 0, clipped to that norm.

        With fp16 a step whose gradients overflowed is left out, and the scale lowered.
        """
        if clip_norm:
            self._scaler.unscale_(optimizer)
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, clip_norm, foreach=True)
        self._scaler.step(optimizer)
        self._scaler.update()

    def state(self) -> dict[str, Any]:
        """Scale and its counters, plain; empty where nothing is scaled."""
        return dict(self._scaler.state_dict())

    def load(self, state: dict[str, Any]) -> None:
        """Go on with what `state` gave."""
        if state:
            self._scaler.load_state_dict(state)
