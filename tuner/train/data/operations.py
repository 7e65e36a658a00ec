"""The operations of TrivialAugment and RandAugment on whole batches, each image with its own operation and magnitude.

They are those of `torchvision.transforms.v2` on tensors of uint8, with its formulas and its rounding: nearest pixels,
black where the image has none. An operation's strength there is a number, here one number for each image.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tuner.train.without_compiler import compiler_not_needed

LEVELS = 255.0  # of an image stored as uint8
LUMA = (0.2989, 0.587, 0.114)  # ITU-R 601, in torchvision's rounding
VALUES_AT_ONCE = 2**17  # on a CPU, whose caches are small

NAMES = (
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast"),
    *("Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"),
)
SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, ROTATE = range(1, 6)

Operation = Callable[[Tensor, Tensor, Tensor], Tensor]


def operate(images: Tensor, chosen: Tensor, magnitudes: Tensor) -> Tensor:
    """Images changed, each by its own operation, without waiting for the device.

    On a CPU each operation only gets its own images. Elsewhere the host doesn't know which these are: each operation
    gets all images, and the results for others are dropped.

    Args:
        images: [B, C, H, W] uint8; not changed
        chosen: [B] int64, places in `NAMES`
        magnitudes: [B] float32, with signs: pixels of a translation, degrees of a rotation, bits that a posterised
            image keeps, the share of white from which on pixels are inverted, the slope of a shear; for others the
            factor minus 1

    Returns:
        [B, C, H, W] uint8, contiguous
    """
    if images.device.type == "cpu":
        return _on_host(images, chosen, magnitudes)
    result = images.contiguous()
    for first, last, operation in OPERATIONS:
        wanted = _of_images((chosen >= first) & (chosen <= last))
        result = torch.where(wanted, operation(images, magnitudes, chosen), result)
    return result


def _on_host(images: Tensor, chosen: Tensor, magnitudes: Tensor) -> Tensor:
    images = images.contiguous()
    result = images.clone()
    at_once = max(1, VALUES_AT_ONCE // max(1, images.shape[1:].numel()))
    for first, last, operation in OPERATIONS:
        for part in torch.split(((chosen >= first) & (chosen <= last)).nonzero().flatten(), at_once):
            if len(part) == 1:  # a view, because gathering a large image takes as long as changing it
                one = slice(int(part), int(part) + 1)
                result[one] = operation(images[one], magnitudes[one], chosen[one])
            elif len(part):
                given = images.index_select(0, part)
                result.index_copy_(0, part, operation(given, magnitudes[part], chosen[part]))
    return result


def luma(images: Tensor) -> Tensor:
    """[B, 1, H, W] float32 of red, green and blue; other images as they are."""
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2]).unsqueeze(1)


def _of_images(values: Tensor) -> Tensor:
    """[B] as [B, 1, 1, 1]."""
    return values.view(-1, 1, 1, 1)


def _stored(values: Tensor) -> Tensor:
    """Float levels as they are stored: rounded down."""
    return values.clamp_(0, LEVELS).to(torch.uint8)


# Places


def _warped(images: Tensor, magnitudes: Tensor, chosen: Tensor) -> Tensor:
    height, width = images.shape[2:]
    across, down = _matrices(magnitudes, chosen, height, width)
    columns = torch.arange(width, device=images.device) + (1 - width) / 2
    rows = torch.arange(height, device=images.device) + (1 - height) / 2
    grid = torch.empty(len(images), height, width, 2, device=images.device)
    for axis, (by_column, by_row, start) in enumerate((across, down)):
        torch.add(by_column * columns[None, None], by_row * rows[None, :, None] + start, out=grid[..., axis])
    warped = F.grid_sample(images.float(), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return warped.to(torch.uint8)


def _matrices(magnitudes: Tensor, chosen: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Maps places in the result, in pixels from its middle, to places in the image, in halves of its edges.

    For columns and for rows, each [3, B, 1, 1]: what a column adds, what a row adds, and what the middle has. Shears
    leave the upper left corner where it is, rotations the middle.
    """

    def only(number: int) -> Tensor:
        return torch.where(chosen == number, magnitudes, 0.0)

    angle = torch.deg2rad(only(ROTATE))
    cos, sin = angle.cos(), angle.sin()
    slope, steepness = only(SHEAR_X), only(SHEAR_Y)
    across = torch.stack([cos, slope - sin, slope * (height / 2) - only(TRANSLATE_X).trunc()]) / (width / 2)
    down = torch.stack([sin + steepness, cos, steepness * (width / 2) - only(TRANSLATE_Y).trunc()]) / (height / 2)
    return across[..., None, None], down[..., None, None]


# Colours


def _brightened(images: Tensor, magnitudes: Tensor, _: Tensor) -> Tensor:
    return _stored(images.float().mul_(_of_images(1 + magnitudes)))


def _blended(images: Tensor, others: Tensor, magnitudes: Tensor) -> Tensor:
    """Images moved away from others by the magnitudes, or towards them if these are negative."""
    return _stored(images.float().sub_(others).mul_(_of_images(1 + magnitudes)).add_(others))


def _coloured(images: Tensor, magnitudes: Tensor, _: Tensor) -> Tensor:
    return _blended(images, luma(images).floor(), magnitudes) if images.shape[1] == 3 else images


def _contrasted(images: Tensor, magnitudes: Tensor, _: Tensor) -> Tensor:
    return _blended(images, luma(images).floor().mean((1, 2, 3), True, dtype=torch.float32), magnitudes)


def _sharpened(images: Tensor, magnitudes: Tensor, _: Tensor) -> Tensor:
    """Sharpened against the mean of a pixel, counted five times, and its eight neighbours; edge pixels stay."""
    if min(images.shape[2:]) <= 2:
        return images
    result = images.float()
    rows = result[:, :, :-2] + result[:, :, 1:-1] + result[:, :, 2:]
    around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    inner = result[:, :, 1:-1, 1:-1]
    blurred = around.add_(inner, alpha=4).div_(13).round_()
    inner.sub_(blurred.sub_(inner).mul_(_of_images(magnitudes)))
    return _stored(result)


def _posterised(images: Tensor, magnitudes: Tensor, _: Tensor) -> Tensor:
    kept = 256 - torch.exp2(8 - magnitudes.clamp(0, 8))
    return images.bitwise_and(_of_images(kept.to(torch.uint8)))


def _solarised(images: Tensor, magnitudes: Tensor, _: Tensor) -> Tensor:
    first = (magnitudes * LEVELS).ceil_().clamp_(0, LEVELS).to(torch.uint8)
    return torch.where(images >= _of_images(first), images.bitwise_not(), images)


def _autocontrasted(images: Tensor, _: Tensor, __: Tensor) -> Tensor:
    """Each channel stretched from black to white; a channel of a single level stays."""
    values = images.float()
    lowest, highest = values.amin((2, 3), True), values.amax((2, 3), True)
    flat = lowest == highest
    scale = torch.where(flat, 1.0, (highest - lowest) * (1 / LEVELS))
    return _stored(values.sub_(torch.where(flat, 0.0, lowest)).div_(scale))


def _equalised(images: Tensor, _: Tensor, __: Tensor) -> Tensor:
    with compiler_not_needed():
        from torchvision.transforms.v2.functional import equalize_image  # for each image and channel separately
    result: Tensor = equalize_image(images)
    return result


OPERATIONS: tuple[tuple[int, int, Operation], ...] = (  # for each operation the first and last place in `NAMES`
    (SHEAR_X, ROTATE, _warped),
    (6, 6, _brightened),
    (7, 7, _coloured),
    (8, 8, _contrasted),
    (9, 9, _sharpened),
    (10, 10, _posterised),
    (11, 11, _solarised),
    (12, 12, _autocontrasted),
    (13, 13, _equalised),
)
