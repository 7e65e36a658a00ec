"""An exponential moving average of a model's weights (Polyak averaging with a memory that fades)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def averaging_weight(decay: float | np.ndarray, updates: int | np.ndarray) -> Any:
    """The weight of the present weights in the update after `updates` others; of arrays, for each average."""
    return 1 - np.minimum(decay, (1 + updates) / (10 + updates))


class AveragedWeights:
    """A copy of a model whose weights follow the model's slowly.

    The decay starts low and rises to `decay`, as (1 + n) / (10 + n) after n updates, so that a short trial isn't held
    back by the weights that it started from. Statistics of batch norms are averaged too; other buffers are copied.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._live = module
        self.module = copy.deepcopy(module).eval().requires_grad_(requires_grad=False)
        self.decay = decay
        self.updates = 0

    def update(self) -> None:
        """Take one step towards the model's present weights; parameters that don't learn are skipped."""
        self.move(self.next_weight())

    def next_weight(self) -> float:
        """The weight of the model's present weights in the next update; counts the update."""
        weight = float(averaging_weight(self.decay, self.updates))
        self.updates += 1
        return weight

    @torch.no_grad()
    def move(self, weight: float | Tensor) -> None:
        """An update with this weight; a tensor [] on the model's device if the update is recorded and replayed."""
        pairs = list(self._moving())
        averages, values = [average for average, _ in pairs], [value for _, value in pairs]
        if pairs:
            torch._foreach_lerp_(averages, values, [weight] * len(pairs) if isinstance(weight, Tensor) else weight)

    def _moving(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Average and present value of each tensor that the last step may have changed."""
        for average, live in zip(self.module.modules(), self._live.modules(), strict=True):
            for name, value in live.named_parameters(recurse=False):
                if value.requires_grad and not value.is_meta:  # those are in other processes
                    yield average.get_parameter(name), value
            if live.training:
                for name, buffer in live.named_buffers(recurse=False):
                    if buffer.is_meta:
                        continue
                    if buffer.is_floating_point():
                        yield average.get_buffer(name), buffer
                    else:
                        average.get_buffer(name).copy_(buffer)
