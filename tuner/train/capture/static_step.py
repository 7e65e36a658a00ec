"""One step over buffers at fixed addresses, so that it can be recorded once and replayed for every batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from tuner.train.feed import Feed
from tuner.train.optimisation import AveragedWeights
from tuner.train.optimisation.mixing import NUMBERS
from tuner.train.step import TrainingStep


class StaticStep:
    """Augmentation, forward and backward pass, clipping, optimizer and averaged weights, for batches of one size.

    Everything that changes from step to step is in its buffers, not in Python numbers: images and labels as they are
    stored, learning rates, the weight of the averaged weights' update, how the batch is mixed. Images are gathered
    outside, for many steps at once. `work` computes what `TrainingStep` and `AveragedWeights.update` would, bit for bit
    on the CPU; it never creates the optimizer's state, which has to exist already.
    """

    def __init__(
        self,
        step: TrainingStep,
        optimizer: Optimizer,
        average: AveragedWeights | None,
        feed: Feed,
        loss: Tensor,
        *,
        images: Tensor,
        labels: Tensor,
    ) -> None:
        """Allocate the buffers.

        Args:
            step: its `forward` is applied to the images
            optimizer: over the parameters that learn
            average: of the weights
            feed: prepares images
            loss: [] float64, to which the sum of the images' losses is added
            images: [B, ...] an example of the batches, as they are stored
            labels: [B] int64, an example, too
        """
        self._step, self._optimizer, self._average, self._feed, self._loss = step, optimizer, average, feed, loss
        self._images, self._labels = torch.empty_like(images), torch.empty_like(labels)
        device, count = images.device, len(images)
        self._count, self._counted = count, torch.tensor(float(count), dtype=torch.float64, device=device)
        kind = torch.float64 if device.type == "cpu" else torch.float32  # CUDA's fused optimizers accept no other
        self._scalars = torch.zeros(len(optimizer.param_groups) + 1 + NUMBERS, dtype=kind, device=device)
        numbers = self._scalars.unbind()
        self._mixed, self._weight, self._rates = numbers[:NUMBERS], numbers[NUMBERS], numbers[NUMBERS + 1 :]

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """The tensors that are written before each step."""
        return self._images, self._labels, self._scalars

    def fill(self, images: Tensor, labels: Tensor) -> None:
        """Take the next batch, with present values of optimizer groups, averaged weights and mixup or CutMix.

        To be called once for each step, after the generators were seeded for it; the host doesn't wait for the device.
        """
        mixing = self._feed.mixing
        mixed = [0.0] * NUMBERS if mixing is None else mixing.draw(*self._images.shape[2:])
        weight = 0.0 if self._average is None else self._average.next_weight()
        values = [*mixed, weight, *(group["lr"] for group in self._optimizer.param_groups)]
        pinned = self._scalars.device.type == "cuda"  # torch keeps it until it was copied
        self._scalars.copy_(torch.tensor(values, dtype=self._scalars.dtype, pin_memory=pinned), non_blocking=True)
        self._images.copy_(images, non_blocking=True)
        self._labels.copy_(labels, non_blocking=True)

    def work(self) -> None:
        """The step on the buffers' content."""
        mixed = None if self._feed.mixing is None else self._mixed
        images, targets = self._feed.prepare(self._images, self._labels, mixed)
        with self._rates_from_buffer():
            mean = self._step.attempt(self._optimizer, images, targets, self._count)
        self._loss.add_(mean * self._counted)
        if self._average is not None:
            self._average.move(self._weight)

    @contextmanager
    def _rates_from_buffer(self) -> Iterator[None]:
        """Within it the optimizer reads its learning rates from the device; outside they are numbers, as saved ones."""
        groups = self._optimizer.param_groups
        before = [dict(group) for group in groups]
        for group, rate in zip(groups, self._rates, strict=True):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = True
        try:
            yield
        finally:
            for group, kept in zip(groups, before, strict=True):
                group.update(kept)
