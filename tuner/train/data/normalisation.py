"""Mean and standard deviation of the channels, and images normalised to mean 0 and deviation 1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

LEVELS = 255.0  # of an image stored as uint8


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of every channel, for pixels in [0, 1] (float images: for their own values)."""

    mean: tuple[float, ...]
    sd: tuple[float, ...]

    @classmethod
    def of(cls, batches: Iterable[Tensor] | Tensor) -> Normalisation:
        """Statistics of images [N, C, H, W], whole or in batches; exact for uint8, from counts of the 256 values."""
        parts = [batches] if isinstance(batches, Tensor) else batches
        count, total, squares = torch.stack([_moments(part).cpu() for part in parts]).sum(0)
        mean = total / count
        sd = (squares / count - mean**2).clamp(min=0).sqrt().clamp(min=1 / LEVELS)
        return cls(tuple(mean.tolist()), tuple(sd.tolist()))

    def __call__(self, images: Tensor) -> Tensor:
        """[N, C, H, W] uint8 (or float) to float32 with mean 0 and standard deviation 1 per channel; a new tensor."""
        if images.dtype == torch.uint8:
            return self.scale_(images.float(), LEVELS)
        return self.scale_(images.clone(), 1.0)

    def scale_(self, images: Tensor, levels: float) -> Tensor:
        """Normalise float images, whose pixels would run to 1 after a division by `levels`, in place."""
        mean, sd = _constants(self.mean, self.sd, levels, images.device)
        return images.sub_(mean).div_(sd)


@lru_cache(maxsize=64)
def _constants(
    mean: tuple[float, ...], sd: tuple[float, ...], levels: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation as [C, 1, 1] on the device, copied there once."""
    return (
        torch.tensor(mean, device=device).mul(levels).view(-1, 1, 1),
        torch.tensor(sd, device=device).mul(levels).view(-1, 1, 1),
    )


def _moments(images: Tensor) -> Tensor:
    """Count, sum and sum of squares of every channel: [3, C] float64."""
    return torch.stack([_channel_moments(images[:, channel]) for channel in range(images.shape[1])], 1)


def _channel_moments(pixels: Tensor) -> Tensor:
    if pixels.dtype == torch.uint8:
        counts = torch.bincount(pixels.flatten(), minlength=256).double()
        values = torch.arange(256, dtype=torch.float64, device=counts.device) / LEVELS
        return torch.stack([counts.sum(), (counts * values).sum(), (counts * values**2).sum()])
    values = pixels.flatten().double()
    return torch.stack([torch.ones_like(values).sum(), values.sum(), (values**2).sum()])
