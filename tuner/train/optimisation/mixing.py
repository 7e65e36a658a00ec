"""Images of a batch mixed with one another, and their labels with them: mixup and CutMix."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.train.data.splits import one_hot

Numbers = Sequence[float] | Sequence[Tensor]
NUMBERS = 8  # numbers that say how a batch is mixed


class Mixing:
    """Mixes each image with the one before it in the batch, all in the same way, by torchvision's draws and formulas.

    Mixup (Zhang et al. 2018, https://arxiv.org/abs/1710.09412): a share of each, from Beta(alpha, alpha). CutMix (Yun
    et al. 2019, https://arxiv.org/abs/1905.04899): a box of the other image, whose area is such a share, with its
    middle anywhere; labels have the visible shares. If both are on, a batch gets either, equally often.

    Eight numbers say how a batch is mixed: shares of an image and of the other one in the pixels, the same in the
    labels, and the box: top, bottom, left, right. They may be tensors, so that a recorded step mixes differently each
    time it is replayed.
    """

    def __init__(self, mixup: float, cutmix: float, classes: int) -> None:
        """`mixup` and `cutmix` are alphas, 0 for off; at least one is on."""
        self._classes = classes
        self._mixup, self._cutmix = (_beta(alpha) for alpha in (mixup, cutmix))

    def draw(self, height: int, width: int) -> list[float]:
        """The numbers for a batch of images of this size, from the CPU's global generator."""
        cuts = self._mixup is None or (self._cutmix is not None and bool(torch.rand(()) < 0.5))
        shares = self._cutmix if cuts else self._mixup
        assert shares is not None
        own = float(shares.sample(()))
        return _box(own, height, width) if cuts else [own, 1 - own, own, 1 - own, 0, 0, 0, 0]

    def __call__(self, images: Tensor, labels: Tensor, numbers: Numbers) -> tuple[Tensor, Tensor]:
        """Mixed images and probabilities [B, classes] from images [B, C, H, W] and labels, as splits have them."""
        own, others, of_labels, of_other_labels, *box = numbers
        probabilities = labels if labels.ndim == 2 else one_hot(labels, self._classes)
        mixed = images if self._mixup is None else _sum(images, own, others)
        if self._cutmix is not None:
            mixed = torch.where(_inside(images, box), images.roll(1, 0), mixed)
        return mixed, _sum(probabilities, of_labels, of_other_labels)


def _beta(alpha: float) -> torch.distributions.Beta | None:
    return torch.distributions.Beta(torch.tensor(alpha), torch.tensor(alpha)) if alpha else None


def _box(own: float, height: int, width: int) -> list[float]:
    """The numbers of CutMix if an image is to have this share."""
    across, down = int(torch.randint(width, ())), int(torch.randint(height, ()))
    half = 0.5 * math.sqrt(1 - own)
    half_wide, half_tall = int(half * width), int(half * height)
    top, bottom = max(0, down - half_tall), min(height, down + half_tall)
    left, right = max(0, across - half_wide), min(width, across + half_wide)
    seen = 1 - (right - left) * (bottom - top) / (width * height)
    return [1, 0, seen, 1 - seen, top, bottom, left, right]


def _sum(values: Tensor, own: float | Tensor, others: float | Tensor) -> Tensor:
    return values.roll(1, 0).mul_(others).add_(values.mul(own))


def _inside(images: Tensor, box: Numbers) -> Tensor:
    """Which pixels are inside the box: [H, W] bool."""
    top, bottom, left, right = box
    rows = torch.arange(images.shape[2], device=images.device)[:, None]
    columns = torch.arange(images.shape[3], device=images.device)
    return (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
