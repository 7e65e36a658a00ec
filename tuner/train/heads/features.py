"""The features that heads learn on, gathered for several of them at once."""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.train.data.splits import HeldSplit


class SharedFeatures:
    """Features and labels of a split, for any number of heads.

    Attributes:
        device: where batches are brought to
        labels: [N] int64, on the device
        width: features of an image
        weights: [N], of the images, on the device; None if all are equal
    """

    def __init__(self, split: HeldSplit, device: torch.device) -> None:
        self._pool, self._rows = split.pool, None if split.rows is None else split.rows.to(split.pool.device)
        self.device, self.labels = device, split.labels.to(device)
        self.width = self._pool.shape[1]
        self.weights = None if split.weights is None else split.weights.values.to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def all(self) -> Tensor:
        """The features [N, F] of all images in order, on the device."""
        values = self._pool if self._rows is None else self._pool.index_select(0, self._rows)
        return values.to(self.device)

    def batch(self, chosen: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features [M, B, F], labels [M, B] and, unless all are equal, weights [M, B] of images `chosen` [M, B].

        `memory` [.., F], on the device of the features, is overwritten.
        """
        rows = chosen.flatten().to(self._pool.device)
        rows = rows if self._rows is None else self._rows.index_select(0, rows)
        values = torch.index_select(self._pool, 0, rows, out=memory[: len(rows)]).to(self.device)
        on_device = chosen.to(self.device)
        weights = None if self.weights is None else self.weights[on_device]
        return values.view(*chosen.shape, self.width), self.labels[on_device], weights

    def memory(self, images: int) -> Tensor:
        """Memory for a batch of so many images of all heads."""
        return self._pool.new_empty(images, self.width)
