"""Random crops that are resized to the whole image again, each image of a batch with its own crop."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from tuner.train.without_compiler import compiler_not_needed

ASPECT = (3 / 4, 4 / 3)  # width over height
ATTEMPTS = 10  # to find a crop that fits into the image


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
    down, across = _places(top, tall, height), _places(left, wide, width)
    shape = (len(images), height, width)
    grid = torch.stack([across[:, None, :].expand(shape), down[:, :, None].expand(shape)], 3)
    result = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return result.round_().to(torch.uint8) if images.dtype == torch.uint8 else result


def _places(start: Tensor, length: Tensor, size: int) -> Tensor:
    """[B, size]: where each pixel of the result is in the image, whose edges are -1 and 1."""
    middles = torch.arange(size, device=start.device) + 0.5
    places = (middles * (length / size) - 0.5).clamp(min=0).minimum(length - 1) + start
    return (2 * places + 1) / size - 1
