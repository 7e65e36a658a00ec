"""TrivialAugment and RandAugment: which operations images go through, and how strongly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tuner.train.data.operations import NAMES, operate

STRENGTHS = 31  # magnitudes of an operation
SIGNED = range(1, 10)  # operations whose magnitude is negative for half of the images: from ShearX to Sharpness


@dataclass(frozen=True)
class Policy:
    """Draws an operation of `NAMES` for each image, all equally likely, `rounds` times.

    "trivial" is TrivialAugment with the wide range of magnitudes (Müller and Hutter 2021,
    https://arxiv.org/abs/2103.10158): one operation, of any of its 31 magnitudes. "rand" is RandAugment (Cubuk et al.
    2020, https://arxiv.org/abs/1909.13719): several operations, all with the same magnitude. Ranges are torchvision's.

    Attributes:
        kind: "trivial" or "rand"
        rounds: operations, one after another; one for "trivial"
        strength: for "rand", 0 to 30
    """

    kind: str
    rounds: int = 1
    strength: int = 9

    def __call__(self, images: Tensor) -> Tensor:
        """Images [B, C, H, W] uint8 to the same; the draws come from the global generator of their device."""
        for _ in range(self.rounds):
            chosen, magnitudes = self.draw(images)
            images = operate(images, chosen, magnitudes)
        return images

    def draw(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Operations [B] int64 and magnitudes [B] float32 of one round, as `operate` takes them."""
        device = images.device
        table = _magnitudes(self.kind, images.shape[2], images.shape[3], device)
        chosen = torch.randint(len(NAMES), (len(images),), device=device)
        strengths = self._strengths(len(images), device)
        negative = torch.rand(len(images), device=device) < 0.5
        signed = (chosen >= SIGNED[0]) & (chosen <= SIGNED[-1])
        magnitudes = table.index_select(0, chosen * STRENGTHS + strengths)
        return chosen, torch.where(signed & negative, -magnitudes, magnitudes)

    def _strengths(self, count: int, device: torch.device) -> Tensor:
        if self.kind == "trivial":
            return torch.randint(STRENGTHS, (count,), device=device)
        return torch.full((count,), self.strength, device=device)


@lru_cache(maxsize=64)
def _magnitudes(kind: str, height: int, width: int, device: torch.device) -> Tensor:
    """All magnitudes of all operations on the device, copied there once: [14 * 31] float32."""
    wide = kind == "trivial"
    colour, shear = (0.99, 0.99) if wide else (0.9, 0.3)
    across, down = (32.0, 32.0) if wide else (150 / 331 * width, 150 / 331 * height)
    fewest_bits = 6 if wide else 4
    highest = (0, shear, shear, across, down, 135.0 if wide else 30.0, *[colour] * 4)
    rows = [torch.linspace(0, each, STRENGTHS) for each in highest]
    bits = (8 - torch.arange(STRENGTHS) / ((STRENGTHS - 1) / fewest_bits)).round()
    rows += [bits, torch.linspace(1, 0, STRENGTHS), torch.zeros(STRENGTHS), torch.zeros(STRENGTHS)]
    return torch.cat(rows).to(device)
