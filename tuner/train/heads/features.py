"""The features that heads learn on, gathered for several of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.train.data.splits import HeldSplit
from tuner.train.randomness import VIEWS, derive_seed


class SharedFeatures:
    """Features and labels of a split, for any number of heads.

    Attributes:
        device: where batches are brought to
        labels: [N] int64, on the device
        width: features of an image
        weights: [N], of the images, on the device; None if all are equal
    """

    def __init__(self, split: HeldSplit, device: torch.device, views: Sequence[HeldSplit] = ()) -> None:
        """Take a split, and `views` of the same images."""
        self._held, self._versions = len(split.pool), 1 + len(views)
        self._pool = torch.cat([split.pool, *(view.pool for view in views)]) if views else split.pool
        self._rows = None if split.rows is None else split.rows.to(split.pool.device)
        self.device, self.labels = device, split.labels.to(device)
        self.width = self._pool.shape[1]
        self.weights = None if split.weights is None else split.weights.values.to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def all(self) -> Tensor:
        """The features [N, F] of all images in order, on the device."""
        values = self._pool[: self._held]
        return (values if self._rows is None else values.index_select(0, self._rows)).to(self.device)

    def every(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features [V, F], labels [V] and, unless all are equal, weights [V] of all images and all their views."""
        pools = self._pool.view(self._versions, self._held, self.width)
        values = pools if self._rows is None else pools.index_select(1, self._rows)
        weights = None if self.weights is None else self.weights.repeat(self._versions)
        return values.flatten(0, 1).to(self.device), self.labels.repeat(self._versions), weights

    def drawn(self, order: Tensor, seed: int, epoch: int) -> Tensor:
        """The images [N] of an order, as numbers that also say which version of each is used in this epoch."""
        if self._versions == 1:
            return order
        draw = torch.Generator().manual_seed(derive_seed(seed, VIEWS, epoch))
        return order + len(self) * torch.randint(self._versions, order.shape, generator=draw)

    def batch(self, drawn: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features [M, B, F], labels [M, B] and, unless all are equal, weights [M, B] of images `drawn` [M, B].

        `memory` [.., F], on the device of the features, is overwritten.
        """
        chosen = drawn % len(self)
        rows = chosen.flatten().to(self._pool.device)
        rows = rows if self._rows is None else self._rows.index_select(0, rows)
        if self._versions > 1:
            rows = rows + self._held * (drawn // len(self)).flatten().to(rows)
        values = torch.index_select(self._pool, 0, rows, out=memory[: len(rows)]).to(self.device)
        on_device = chosen.to(self.device)
        weights = None if self.weights is None else self.weights[on_device]
        return values.view(*chosen.shape, self.width), self.labels[on_device], weights

    def memory(self, images: int) -> Tensor:
        """Memory for a batch of so many images of all heads."""
        return self._pool.new_empty(images, self.width)
