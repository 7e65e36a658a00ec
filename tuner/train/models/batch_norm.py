"""Batch norm over the images of all processes, for parts of a batch that are too small on each process."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm

from tuner.train.tasks.objective import at_least_float32


def synchronise_batch_norms(module: nn.Module, device: torch.device) -> nn.Module:
    """The module with its batch norms over the whole group's batch; names and shapes of its tensors stay.

    On GPUs torch's own `SyncBatchNorm`, which has no CPU version.
    """
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-any-return, no-untyped-call]
    for name, layer in list(module.named_modules()):
        if type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d) and layer.track_running_stats:
            module.set_submodule(name, SynchronisedBatchNorm.like(layer))
    return module


def is_synchronised(layer: nn.Module) -> bool:
    """Whether a batch norm takes its statistics over all processes."""
    return isinstance(layer, nn.SyncBatchNorm | SynchronisedBatchNorm)


class SynchronisedBatchNorm(_BatchNorm):
    """Takes mean and variance over the images of all processes of the default group; gradients flow through both."""

    @classmethod
    def like(cls, layer: _BatchNorm) -> SynchronisedBatchNorm:
        """A layer with the tensors and settings of another batch norm."""
        made = cls(layer.num_features, layer.eps, layer.momentum, layer.affine)
        made.weight, made.bias = layer.weight, layer.bias
        made.running_mean, made.running_var = layer.running_mean, layer.running_var
        made.num_batches_tracked = layer.num_batches_tracked
        return made.train(layer.training)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- nn.Module's name
        """[B, C, ...] to the same."""
        if not self.training:
            return super().forward(input)
        values = at_least_float32(input)
        axes = [axis for axis in range(values.ndim) if axis != 1]
        count = torch.tensor([values.numel() / values.shape[1]], dtype=torch.float64)
        torch.distributed.all_reduce(count)
        images = float(count)
        mean = all_reduce(values.sum(axes)) / images  # type: ignore[no-untyped-call]
        centred = values - _along_channels(mean, values.ndim)
        variance = all_reduce(centred.square().sum(axes)) / images  # type: ignore[no-untyped-call]
        self._move(mean.detach(), variance.detach() * images / max(1.0, images - 1))
        normal = centred * _along_channels((variance + self.eps).rsqrt(), values.ndim)
        if self.weight is not None:
            normal = normal * _along_channels(self.weight, values.ndim) + _along_channels(self.bias, values.ndim)
        return normal.to(input.dtype)

    def _move(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of the batch."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        """Accept any number of axes."""


def _along_channels(values: Tensor, axes: int) -> Tensor:
    """[C] as [1, C, 1, ...]."""
    return values.view(1, -1, *(1,) * (axes - 2))
