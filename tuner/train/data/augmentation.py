"""Augmentation of a whole batch as tensor work on its device, with random parameters of its own for each image."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tuner.train.data.operations import LEVELS, luma
from tuner.train.data.policies import Policy
from tuner.train.without_compiler import compiler_not_needed

ERASED_AREA = (0.02, 0.33)  # share of the image
ERASED_ASPECT = (0.3, 3.3)  # height over width
ASPECT = (3 / 4, 4 / 3)  # width over height
ATTEMPTS = 10  # to find a crop that fits into the image


@dataclass(frozen=True)
class Augmentation:
    """Random crops, mirror images, policies, colours and erased rectangles, in this order.

    Random numbers come from torch's global generator of the images' device; their number and order depend on the
    batch's size and on what is switched on, never on the images.

    Attributes:
        crop_padding: pixels of zeros around the stored image, from which a window of the old size is cut
        flip: probability of a mirror image, left to right
        color_jitter: s: brightness, contrast and saturation (of 3 channels), in this order, are each scaled by U(1 - s,
            1 + s) as torchvision's ColorJitter does; hue stays, because it would need a change of colour space
        random_erasing: probability that a rectangle is set to the mean: 2 to 33% of the image, height over width
            log-uniform from 0.3 to 3.3 (Zhong et al. 2017, https://arxiv.org/abs/1708.04896)
        random_resized_crop: smallest share of the stored image that is cut out and resized to the whole; 0 for off
        policy: TrivialAugment or RandAugment; float images are rounded to the 256 levels that these use
    """

    crop_padding: int = 0
    flip: float = 0.0
    color_jitter: float = 0.0
    random_erasing: float = 0.0
    random_resized_crop: float = 0.0
    policy: Policy | None = None

    @property
    def active(self) -> bool:
        """Whether anything is changed at all."""
        return self != Augmentation()

    def __call__(self, images: Tensor, normalise: Callable[[Tensor], Tensor]) -> Tensor:
        """Augmented and normalised images, without waiting for the device.

        Args:
            images: [B, C, H, W] uint8, or float32 from 0 to 1; not changed
            normalise: from uint8, or from float32 from 0 to 1, to float32; colours are jittered as float32

        Returns:
            [B, C, H, W] float32 on the device of `images`, contiguous if pixels moved, otherwise in the memory format
            that `normalise` returns; exactly `normalise(images)` if nothing is switched on
        """
        if self.crop_padding or self.flip:
            images = self._cropped_and_flipped(images)
        if self.random_resized_crop:
            count, _, height, width = images.shape
            boxes = random_boxes(count, height, width, self.random_resized_crop, images.device)
            images = resized_crops(images, boxes)
        if self.policy is not None:
            images = _through(self.policy, images)
        if self.color_jitter:
            images = self._jittered(images)
        result = normalise(images)
        return self._erased(result) if self.random_erasing else result

    def _cropped_and_flipped(self, images: Tensor) -> Tensor:
        count, _, height, width = images.shape
        padding, device = self.crop_padding, images.device
        rows = torch.arange(height, device=device).expand(count, height)
        columns = torch.arange(width, device=device).expand(count, width)
        if self.flip:
            mirrored = torch.rand(count, 1, device=device) < self.flip
            columns = torch.where(mirrored, width - 1 - columns, columns)
        if padding:
            top, left = torch.randint(0, 2 * padding + 1, (2, count, 1), device=device)
            rows, columns = rows + top, columns + left
            images = torch.nn.functional.pad(images, (padding, padding, padding, padding))
        return _pixels_at(images, rows, columns)

    def _jittered(self, images: Tensor) -> Tensor:
        lowest, highest = max(0.0, 1 - self.color_jitter), 1 + self.color_jitter
        factors = torch.empty(3, len(images), 1, 1, 1, device=images.device).uniform_(lowest, highest)
        brightness, contrast, saturation = factors
        levels = LEVELS if images.dtype == torch.uint8 else 1.0
        result = images.to(torch.float32, copy=True).mul_(brightness / levels).clamp_(0, 1)
        middle = luma(result).mean((1, 2, 3), keepdim=True)
        result.mul_(contrast).add_(middle * (1 - contrast)).clamp_(0, 1)
        if images.shape[1] == 3:
            result.lerp_(luma(result), 1 - saturation).clamp_(0, 1)
        return result

    def _erased(self, images: Tensor) -> Tensor:
        count, _, height, width = images.shape
        chosen, area, aspect, top, left = torch.rand(5, count, 1, device=images.device)
        tall, wide = _rectangle(area, aspect, height, width)
        rows = _span(top, tall, height) * (chosen < self.random_erasing)
        columns = _span(left, wide, width)
        erased = rows[:, None, :, None] * columns[:, None, None, :]
        return images.mul(1 - erased)  # on a CPU faster than a masked fill


def _pixels_at(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Each image [C, h, w] at its own rows [B, H] and columns [B, W]: [B, C, H, W], contiguous."""
    count, channels = images.shape[:2]
    height, width = rows.shape[1], columns.shape[1]
    places = (rows * images.shape[-1]).unsqueeze(2) + columns.unsqueeze(1)
    shared = places.view(count, 1, height * width).expand(count, channels, height * width)
    return images.flatten(2).gather(2, shared).view(count, channels, height, width)


def _through(policy: Policy, images: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return policy(images)
    return policy(images.mul(LEVELS).round_().clamp_(0, LEVELS).to(torch.uint8)).float().div_(LEVELS)


def _rectangle(area: Tensor, aspect: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Height and width [B, 1] in pixels, whole numbers as floats, from draws of U(0, 1).

    The aspect is drawn from the part of its range that fits into the image; the paper draws again until a rectangle
    fits. If no aspect fits (a very long image), the rectangle spans the short side.
    """
    pixels = (area * (ERASED_AREA[1] - ERASED_AREA[0]) + ERASED_AREA[0]) * (height * width)
    as_wide, as_tall = pixels / width**2, height**2 / pixels  # aspects that span the image
    lowest = as_wide.clamp(min=ERASED_ASPECT[0]).minimum(as_tall)
    highest = as_tall.clamp(max=ERASED_ASPECT[1]).maximum(as_wide)
    ratio = lowest * (highest / lowest).pow(aspect)
    tall, wide = (pixels * ratio).sqrt(), (pixels / ratio).sqrt()
    return tall.round().clamp(1, height), wide.round().clamp(1, width)


def _span(start: Tensor, length: Tensor, size: int) -> Tensor:
    """[B, size] float32: 1 over `length` [B, 1] places of a row of `size`, 0 elsewhere; `start` [B, 1] is U(0, 1)."""
    first = (start * (size - length + 1)).floor()
    places = torch.arange(size, device=start.device)
    return ((places >= first) & (places < first + length)).float()


def random_boxes(count: int, height: int, width: int, least: float, device: torch.device) -> Tensor:
    """Crops as torchvision's `RandomResizedCrop` draws them: top, left, height and width in pixels, [4, count] float32.

    The area is uniform from the share `least` of the image to all of it, the aspect log-uniform from 3/4 to 4/3. The
    first of ten attempts that fits is taken; if none does, the largest crop in the middle.
    """
    area, aspect = torch.rand(2, ATTEMPTS, count, device=device)
    area = area.mul(1 - least).add(least).mul(height * width)
    aspect = aspect.mul(2 * math.log(ASPECT[1])).sub(math.log(ASPECT[1])).exp()
    wide, tall = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = fits.int().argmax(0, keepdim=True)
    any_fits = fits.any(0)
    middle_tall, middle_wide = _largest(height, width)
    tall = torch.where(any_fits, tall.gather(0, first)[0], float(middle_tall))
    wide = torch.where(any_fits, wide.gather(0, first)[0], float(middle_wide))
    down, across = torch.rand(2, count, device=device)
    top = torch.where(any_fits, (down * (height - tall + 1)).floor(), float((height - middle_tall) // 2))
    left = torch.where(any_fits, (across * (width - wide + 1)).floor(), float((width - middle_wide) // 2))
    return torch.stack([top, left, tall, wide])


def _largest(height: int, width: int) -> tuple[int, int]:
    """Height and width of the largest crop of an image, of an aspect that is allowed."""
    if width / height < ASPECT[0]:
        return round(width / ASPECT[0]), width
    if width / height > ASPECT[1]:
        return height, round(height * ASPECT[1])
    return height, width


def resized_crops(images: Tensor, boxes: Tensor) -> Tensor:
    """Crops of images [B, C, H, W], by `boxes` [4, B] as `random_boxes` gives them, as large as the images were.

    Bilinear, as torchvision resizes; pixels outside of a crop have no influence. For uint8 the result is rounded.
    """
    height, width = images.shape[2:]
    if images.device.type == "cpu" and len(images):  # torchvision's kernel is three times as fast there
        each = zip(images, boxes.T.int().tolist(), strict=True)
        with compiler_not_needed():
            from torchvision.transforms.v2.functional import resized_crop_image
        return torch.stack([resized_crop_image(image, *box, [height, width]) for image, box in each])
    top, left, tall, wide = boxes[:, :, None]
    down, across = _crop_places(top, tall, height), _crop_places(left, wide, width)
    shape = (len(images), height, width)
    grid = torch.stack([across[:, None, :].expand(shape), down[:, :, None].expand(shape)], 3)
    result = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return result.round_().to(torch.uint8) if images.dtype == torch.uint8 else result


def _crop_places(start: Tensor, length: Tensor, size: int) -> Tensor:
    """[B, size]: where each pixel of the result is in the image, whose edges are -1 and 1."""
    middles = torch.arange(size, device=start.device) + 0.5
    places = (middles * (length / size) - 0.5).clamp(min=0).minimum(length - 1) + start
    return (2 * places + 1) / size - 1
