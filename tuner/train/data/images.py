"""Image files to uint8 tensors, and one way of resizing for training and for prediction."""

from __future__ import annotations

import hashlib
import re
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from tuner.errors import DataError
from tuner.trial.framing import Framing, Interpolation
from tuner.trial.image_limits import MAX_PIXELS_VARIABLE, most_pixels, too_large, what_is_wrong
from tuner.trial.pixels import LONGEST_SIDE, NO_DEEP, DeepScale, Refused, TooLarge, UnknownScale, eight_bit, read

warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # tuner refuses such images itself


class UnreadableImage(DataError):  # noqa: N818 -- it names a thing
    """A file that is not an image, or can't be read; `reason` says why, as words after "it"."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_image(path: Path, channels: int = 3, scale: DeepScale | None = NO_DEEP) -> Tensor:
    """The image of a file, see `tuner.trial.pixels.upright`.

    Args:
        path: a file of any mode (grey, 16 bit, palette, RGBA, CMYK)
        channels: 3 (RGB) or 1 (grey)
        scale: of the data set's deep images; None if it isn't known yet

    Returns:
        [channels, H, W] uint8.

    Raises:
        UnknownScale: it is a deep image, and `scale` is None.
        UnreadableImage: the file isn't an image, is cut off, has more pixels than $TUNER_MAX_IMAGE_PIXELS, or is a deep
            image with values that have no level of grey.
        DataError: the file is gone, or the disk fails.
    """
    limit = max_pixels()
    try:
        pixels = torch.from_numpy(np.array(read(path, "RGB" if channels == 3 else "L", scale, limit)))
    except (MemoryError, UnknownScale):
        raise
    except TooLarge as error:
        raise _too_large(path, error.pixels, limit) from error
    except Image.DecompressionBombError as error:
        raise _too_large(path, int(re.findall(r"\d+", str(error))[0]), limit) from error
    except Exception as error:  # decoders may raise anything for a damaged file
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(
                f"an image must be readable, got {path}: {error.strerror}; check the path and the disk"
            ) from error
        reason = what_is_wrong(path, error)
        fix = "" if isinstance(error, Refused) else "; repair or remove it"  # that names its own
        raise UnreadableImage(f"an image must be readable, got {path}: it {reason}{fix}", reason) from error
    return pixels.permute(2, 0, 1) if pixels.ndim == 3 else pixels[None]


def max_pixels() -> int:
    """The most pixels that an image may have: $TUNER_MAX_IMAGE_PIXELS, else 120 million.

    Raises:
        DataError: the variable isn't a whole number from 1.
    """
    limit = most_pixels()
    if Image.MAX_IMAGE_PIXELS is not None:  # Pillow's own limit, which it only reads there
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, limit)
    return limit


def _too_large(path: Path, pixels: int, limit: int) -> UnreadableImage:
    return UnreadableImage(
        f"an image must have at most {limit:,} pixels, got {path} with {pixels:,}, which would fill the memory; remove "
        f"it, or set {MAX_PIXELS_VARIABLE} to read it",
        too_large(pixels, limit),
    )


def resize(images: Tensor, framing: Framing | int) -> Tensor:
    """The images resized by `framing`: their central square, or their shorter side and then the centre cut out.

    The second is what torchvision's `ImageClassification` does, with the same cut to the pixel; its values, from
    Pillow, differ by a level or two.

    Args:
        images: [N, C, H, W] uint8
        framing: size, crop and interpolation; always antialiased. A number is the edge of the whole square's result

    Returns:
        [N, C, pixels, pixels] uint8
    """
    framing = Framing(framing) if isinstance(framing, int) else framing
    if framing.resize is None:
        height, width = images.shape[-2:]
        edge = min(height, width)
        top, left = (height - edge) // 2, (width - edge) // 2
        square = images[..., top : top + edge, left : left + edge]
        return _scaled(square, framing.pixels, framing.pixels, framing)
    if framing.squash:
        height = width = framing.resize
    else:
        shorter = min(images.shape[-2:])
        images = _centre(images, LONGEST_SIDE * shorter)  # of a very long image, which would take all memory
        height, width = (framing.resize * side // shorter for side in images.shape[-2:])
    return _centre(_scaled(images, height, width, framing), framing.pixels).contiguous()


def _scaled(images: Tensor, height: int, width: int, framing: Framing) -> Tensor:
    if images.shape[-2:] == (height, width):
        return images.contiguous()
    if framing.pillow and images.dtype == torch.uint8:
        return torch.stack([_scaled_by_pillow(image, height, width, framing.interpolation) for image in images])
    return F.interpolate(images, size=(height, width), mode=framing.interpolation, antialias=True)


def _scaled_by_pillow(image: Tensor, height: int, width: int, interpolation: Interpolation) -> Tensor:
    """[C, H, W] uint8 resized; Pillow resizes every channel by itself."""
    how = Image.Resampling[interpolation.upper()]
    planes = [Image.fromarray(plane.numpy()).resize((width, height), how) for plane in image.cpu()]
    return torch.stack([torch.from_numpy(np.array(plane)) for plane in planes])


def _centre(images: Tensor, edge: int) -> Tensor:
    """The central square of that edge, rounded as torchvision rounds; a shorter side is kept whole."""
    rows, columns = min(edge, images.shape[-2]), min(edge, images.shape[-1])
    top, left = round((images.shape[-2] - rows) / 2), round((images.shape[-1] - columns) / 2)
    return images[..., top : top + rows, left : left + columns]


def as_tensor(image: object) -> Tensor:
    """An image as a user's data set yields it: a tensor [C, H, W], an array [H, W] or [H, W, C], or a PIL image.

    Returns:
        [C, H, W] uint8 or float32.

    Raises:
        DataError: it is none of these.
    """
    if isinstance(image, Image.Image):
        try:
            image = np.asarray(eight_bit(image, "L" if image.mode in ("1", "L") else "RGB", NO_DEEP))
        except Refused as error:
            raise DataError(f"a PIL image must have a range that is known, got one that {error}") from error
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
    content = pixels.reshape(-1).view(np.uint8)
    digest = hashlib.blake2b(content.data, digest_size=8, person=repr(pixels.shape).encode()[:16])
    return int.from_bytes(digest.digest(), "little")
