"""Image files to uint8 tensors: any mode, any size; and one way of resizing for training and for prediction."""

from __future__ import annotations

import hashlib
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor
from torch.nn import functional as F

from tuner.errors import DataError
from tuner.trial import HYPERPARAMETERS
from tuner.trial.framing import Framing, Interpolation
from tuner.trial.image_limits import FORMATS, MAX_PIXELS_VARIABLE, most_pixels, too_large, what_is_wrong

LARGE_PIXELS = 2**25  # larger images are decoded one at a time, and at a reduced size
LARGEST_EDGE = int(HYPERPARAMETERS["image_size"].high or 0)  # that any model needs
LONGEST_SIDE = 8  # of an image as a multiple of its shorter side, before it is resized and cut
ROWS = 256  # rows of a large image that are converted at once

_ONE_LARGE = threading.Lock()
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # tuner refuses such images itself


class UnreadableImage(DataError):  # noqa: N818 -- it names a thing
    """A file that is not an image, or can't be read; `reason` says why, as words after "it"."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_image(path: Path, channels: int = 3) -> Tensor:
    """The image of a file, upright as its EXIF data says, of any mode (grey, 16 bit, palette, RGBA, CMYK).

    For an image of more than 2**25 pixels it is the central square, reduced to an edge of 1024 to 2047 pixels if it is
    larger.

    Returns:
        [channels, H, W] uint8; channels is 3 (RGB) or 1 (grey).

    Raises:
        UnreadableImage: the file isn't an image, is cut off, or has more pixels than $TUNER_MAX_IMAGE_PIXELS.
        DataError: the file is gone, or the disk fails.
    """
    limit = max_pixels()
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > limit:
                raise _too_large(path, image.width * image.height, limit)
            pixels = _pixels(image, "RGB" if channels == 3 else "L")
    except (DataError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise _too_large(path, int(re.findall(r"\d+", str(error))[0]), limit) from error
    except Exception as error:  # decoders may raise anything for a damaged file
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(
                f"an image must be readable, got {path}: {error.strerror}; check the path and the disk"
            ) from error
        reason = what_is_wrong(path, error)
        raise UnreadableImage(
            f"an image must be readable, got {path}: it {reason}; repair or remove it", reason
        ) from error
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


def _pixels(image: Image.Image, mode: str) -> Tensor:
    """[H, W] or [H, W, 3] uint8 from an opened image."""
    large = image.width * image.height > LARGE_PIXELS
    with _ONE_LARGE if large else nullcontext():
        if large:
            picture = _reduced(image, mode)
        else:
            picture = _eight_bit(image)
            ImageOps.exif_transpose(picture, in_place=True)
            picture = picture if picture.mode == mode else picture.convert(mode)
        return torch.from_numpy(np.array(picture, dtype=np.uint8))


def _reduced(image: Image.Image, mode: str) -> Image.Image:
    """The central square, upright, decoded at a fraction of its size where the format can (JPEG), then reduced.

    The fraction depends only on the image, so that training and prediction get the same pixels.
    """
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    image.draft(None, (LARGEST_EDGE, LARGEST_EDGE))
    edge = min(image.size)
    factor = max(1, edge // LARGEST_EDGE)
    square = Image.new(mode, (-(-edge // factor), -(-edge // factor)))
    for top, strip in _strips(image, edge, ROWS * factor):
        square.paste(strip.convert(mode).reduce(factor), (0, top // factor))
    square.getexif()[ExifTags.Base.Orientation] = orientation
    ImageOps.exif_transpose(square, in_place=True)
    return square


def _strips(image: Image.Image, edge: int, rows: int) -> Iterator[tuple[int, Image.Image]]:
    """The central square in strips, each with the number of its first row; 8 bits per channel."""
    left, above = (image.width - edge) // 2, (image.height - edge) // 2
    highest = float(np.max(image.getextrema())) if image.mode in ("I", "F") else None
    for top in range(0, edge, rows):
        box = (left, above + top, left + edge, above + min(top + rows, edge))
        yield top, _eight_bit(image.crop(box), highest)


def _eight_bit(image: Image.Image, highest: float | None = None) -> Image.Image:
    """The image in a mode with 8 bits per channel; transparent parts become white.

    Args:
        image: any
        highest: greatest value of the whole image
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image, dtype=np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        return Image.fromarray(_stretched(np.asarray(image, dtype=np.float64), highest))
    if image.mode in ("LA", "PA", "La", "RGBa", "RGBA") or "transparency" in image.info:
        overlay = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", overlay.size, "white"), overlay)
    return image


def _stretched(values: np.ndarray, highest: float | None) -> np.ndarray:
    """Numbers in [0, 1], 8 or 16 bits as 8 bits; the smallest range that contains them is assumed."""
    top = values.max(initial=0.0) if highest is None else highest
    whole_range = next((limit for limit in (1.0, 255.0, 65535.0) if top <= limit), top)
    return np.clip(np.rint(values * (255.0 / whole_range)), 0, 255).astype(np.uint8)


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
        return _scaled(square, framing.pixels, framing.pixels, framing.interpolation)
    shorter = min(images.shape[-2:])
    images = _centre(images, LONGEST_SIDE * shorter)  # of a very long image, which would take all memory
    height, width = (framing.resize * side // shorter for side in images.shape[-2:])
    return _centre(_scaled(images, height, width, framing.interpolation), framing.pixels).contiguous()


def _scaled(images: Tensor, height: int, width: int, interpolation: Interpolation) -> Tensor:
    if images.shape[-2:] == (height, width):
        return images.contiguous()
    return F.interpolate(images, size=(height, width), mode=interpolation, antialias=True)


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
    content = pixels.reshape(-1).view(np.uint8)
    digest = hashlib.blake2b(content.data, digest_size=8, person=repr(pixels.shape).encode()[:16])
    return int.from_bytes(digest.digest(), "little")
