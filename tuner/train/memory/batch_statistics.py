"""Batch norm if a batch is trained in parts: its statistics are still those of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tuner.train.models.batch_norm import is_synchronised
from tuner.train.tasks.objective import at_least_float32


class BatchNorms:
    """The batch norms of a module."""

    def __init__(self, module: nn.Module) -> None:
        self._all = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
        self._kept: tuple[list[_BatchNorm], list[Copies]] = [], []

    @property
    def learning(self) -> list[_BatchNorm]:
        """The batch norms in training mode, which take their statistics from the batch."""
        return [layer for layer in self._all if layer.training]

    def keep(self) -> None:
        """Save the running statistics of those that learn: one launch for each dtype, into the same memory."""
        learning = self.learning
        if learning != self._kept[0]:
            self._kept = learning, copies_of([buffer for layer in learning for buffer in layer.buffers()])
            return
        for values, copies in self._kept[1]:
            torch._foreach_copy_(copies, values)

    def put_back(self) -> None:
        """Restore the running statistics that `keep` saved."""
        for values, copies in self._kept[1]:
            torch._foreach_copy_(values, copies)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within it batch norms use their running statistics, and leave them as they are."""
        learning = self.learning
        for layer in learning:
            layer.eval()
        try:
            yield
        finally:
            for layer in learning:
                layer.train()

    @contextmanager
    def whole_batch(self, forward: Callable[[], Any], summed: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Within it batch norms use the statistics of the whole batch, found by one pass without gradient.

        `forward` passes the whole batch through the module; that also updates the running statistics, once, like a step
        on the whole batch. The only difference is that gradients don't flow through mean and variance. `summed` sums a
        tensor over all processes, for batch norms over the images of all.
        """
        found: dict[_BatchNorm, tuple[Tensor, Tensor]] = {}

        def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            values = at_least_float32(inputs[0])
            axes = [axis for axis in range(values.ndim) if axis != 1]
            variance, mean = torch.var_mean(values, dim=axes, correction=0)
            if is_synchronised(layer):
                count = values.numel() / values.shape[1]
                sums = summed(torch.stack([torch.full_like(mean, count), count * mean, count * (variance + mean**2)]))
                mean = sums[1] / sums[0]
                variance = sums[2] / sums[0] - mean**2
            if isinstance(layer, _BatchNorm):
                found[layer] = (mean, variance)

        learning = self.learning
        with ExitStack() as hooks, torch.no_grad():
            for layer in learning:
                hooks.callback(layer.register_forward_hook(note).remove)
            forward()
        with self._with_statistics(found), self.frozen():
            yield

    @staticmethod
    @contextmanager
    def _with_statistics(found: dict[_BatchNorm, tuple[Tensor, Tensor]]) -> Iterator[None]:
        kept = {layer: (layer.running_mean, layer.running_var) for layer in found}
        for layer, (mean, variance) in found.items():
            layer.running_mean, layer.running_var = mean, variance
        try:
            yield
        finally:
            for layer, (running_mean, running_var) in kept.items():
                layer.running_mean, layer.running_var = running_mean, running_var


Copies = tuple[list[Tensor], list[Tensor]]


def copies_of(tensors: list[Tensor]) -> list[Copies]:
    """Tensors and copies of them, in lists of one type each, as `_foreach_copy_` takes them in one launch."""
    types = dict.fromkeys(tensor.dtype for tensor in tensors)
    lists = [[tensor for tensor in tensors if tensor.dtype == kind] for kind in types]
    return [(values, [value.clone() for value in values]) for values in lists]
