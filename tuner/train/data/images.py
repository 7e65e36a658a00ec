"""Image files to uint8 tensors: any mode, any size; and one way of resizing for training and for prediction."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional as F

from tuner.errors import DataError

UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)


def read_image(path: Path, channels: int = 3) -> Tensor:
    """The image of a file, upright as its EXIF data says, of any mode (grey, 16 bit, palette, RGBA, CMYK).

    Returns:
        [channels, H, W] uint8; channels is 3 (RGB) or 1 (grey).

    Raises:
        DataError: the file is no image, or is cut off.
    """
    try:
        with Image.open(path) as image:
            picture = ImageOps.exif_transpose(_eight_bit(image)).convert("RGB" if channels == 3 else "L")
    except UNREADABLE as error:
        raise DataError(f"an image must be readable, got {path}: {error}; repair or remove it") from error
    pixels = torch.from_numpy(np.array(picture, dtype=np.uint8))
    return pixels.permute(2, 0, 1) if pixels.ndim == 3 else pixels[None]


def _eight_bit(image: Image.Image) -> Image.Image:
    """The image in a mode of 8 bits a channel; what is transparent becomes white."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image, dtype=np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        return Image.fromarray(_stretched(np.asarray(image, dtype=np.float64)))
    if image.mode in ("LA", "PA", "La", "RGBa", "RGBA") or "transparency" in image.info:
        overlay = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", overlay.size, "white"), overlay)
    return image


def _stretched(values: np.ndarray) -> np.ndarray:
    """Numbers that were meant as [0, 1], 8 or 16 bits, as 8 bits; the least range that holds them is taken."""
    top = values.max(initial=0.0)
    whole_range = next((limit for limit in (1.0, 255.0, 65535.0) if top <= limit), top)
    return np.clip(np.rint(values * (255.0 / whole_range)), 0, 255).astype(np.uint8)


def resize(images: Tensor, pixels: int) -> Tensor:
    """The central square of every image, brought to `pixels` x `pixels` (bilinear, antialiased).

    Args:
        images: [N, C, H, W] uint8
        pixels: edge of the result

    Returns:
        [N, C, pixels, pixels] uint8
    """
    height, width = images.shape[-2:]
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    square = images[..., top : top + edge, left : left + edge]
    if edge == pixels:
        return square.contiguous()
    return F.interpolate(square, size=(pixels, pixels), mode="bilinear", antialias=True)


def as_tensor(image: object) -> Tensor:
    """An image as a user's data set yields it: a tensor [C, H, W], an array [H, W] or [H, W, C], or a PIL image.

    Returns:
        [C, H, W] uint8 or float32.

    Raises:
        DataError: it is none of these.
    """
    if isinstance(image, Image.Image):
        image = np.asarray(_eight_bit(image).convert("L" if image.mode in ("1", "L") else "RGB"))
    if isinstance(image, np.ndarray):
        array = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
        image = torch.from_numpy(array.copy())
    if not isinstance(image, Tensor) or image.ndim != 3:
        got = f"a tensor of shape {tuple(image.shape)}" if isinstance(image, Tensor) else f"{type(image).__name__}"
        raise DataError(f"an image must be a tensor [C, H, W], an array or a PIL image, got {got}; convert it")
    return image if image.dtype == torch.uint8 else image.float()


def pixel_key(image: Tensor | np.ndarray) -> int:
    """64 bits that two images share only if their pixels and their shape are the same."""
    pixels = np.ascontiguousarray(image)
    digest = hashlib.blake2b(pixels.tobytes(), digest_size=8, person=repr(pixels.shape).encode()[:16])
    return int.from_bytes(digest.digest(), "little")
