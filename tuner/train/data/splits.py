"""Images in memory as uint8 tensors: a split, the three splits of a data set, and their normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tuner.train.data.images import resize

CHUNK = 4096  # images a step where a whole split at once would need many times its memory


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: [N, C, H, W] uint8
        labels: [N] int64
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: np.ndarray) -> Split:
        """The images that a mask [N] bool chooses, in their order."""
        mask = torch.from_numpy(chosen)
        return Split(self.images[mask], self.labels[mask])

    def resized(self, pixels: int) -> Split:
        """The same split with images of `pixels` x `pixels`."""
        if self.images.shape[-2:] == (pixels, pixels):
            return self
        return Split(torch.cat([resize(chunk, pixels) for chunk in in_chunks(self.images, CHUNK)]), self.labels)

    def to(self, device: torch.device | str) -> Split:
        """The same split on `device`."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of every channel, of pixels in [0, 1]."""

    mean: tuple[float, ...]
    sd: tuple[float, ...]

    @classmethod
    def of(cls, images: Tensor) -> Normalisation:
        """The statistics of images [N, C, H, W] uint8; exact, from counts of the 256 values."""
        channels = [_histogram(images[:, channel]) for channel in range(images.shape[1])]
        values = torch.arange(256, dtype=torch.float64) / 255
        means = [float((counts * values).sum() / counts.sum()) for counts in channels]
        sds = [
            float(((counts * (values - mean) ** 2).sum() / counts.sum()).sqrt())
            for counts, mean in zip(channels, means, strict=True)
        ]
        return cls(tuple(means), tuple(max(sd, 1 / 255) for sd in sds))

    def __call__(self, images: Tensor) -> Tensor:
        """[N, C, H, W] uint8 to float32 with mean 0 and standard deviation 1 per channel."""
        mean = torch.tensor(self.mean, device=images.device).mul(255).view(-1, 1, 1)
        sd = torch.tensor(self.sd, device=images.device).mul(255).view(-1, 1, 1)
        return images.float().sub_(mean).div_(sd)


@dataclass(frozen=True)
class Splits:
    """A data set, cut: search sees training and validation, the winner is scored once on test."""

    train: Split
    validation: Split
    test: Split
    classes: tuple[str, ...]

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return self.train.images.shape[1]

    @property
    def image_size(self) -> int:
        """Edge of the images in pixels."""
        return self.train.images.shape[-1]

    @cached_property
    def normalisation(self) -> Normalisation:
        """The statistics of the training images; validation and test take no part in them."""
        return Normalisation.of(self.train.images)


def in_chunks(tensor: Tensor, size: int) -> Iterator[Tensor]:
    """Views of `size` rows each, the last one of what is left."""
    return (tensor[start : start + size] for start in range(0, len(tensor), size))


def _histogram(pixels: Tensor) -> Tensor:
    """How often each of the 256 values occurs: [256] int64."""
    chunks = (torch.bincount(chunk.flatten(), minlength=256) for chunk in in_chunks(pixels, CHUNK))
    return torch.stack(list(chunks)).sum(0)
