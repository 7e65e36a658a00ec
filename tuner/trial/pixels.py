"""What a pixel is: an image file of any mode as RGB or grey of 8 bits, upright.

It needs Pillow and numpy alone: an exported winner has this very file beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageFile, ImageOps

try:
    from pillow_heif import register_heif_opener
except ImportError:  # photos of many phones aren't read then
    OF_PHONES: tuple[str, ...] = ()
else:
    register_heif_opener()
    OF_PHONES = ("HEIF",)

T = TypeVar("T")
R = TypeVar("R")

# Not EPS, which Pillow passes to Ghostscript, nor formats that are rarely used and rarely maintained.
FORMATS = (
    *OF_PHONES,
    *("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO", "TGA", "QOI", "PCX"),
)
WITH_ALPHA = ("LA", "PA", "La", "RGBa", "RGBA")
FULL_16_BITS = ("PNG", "PPM")  # formats whose whole numbers are of 16 bits, in whatever mode Pillow opens them
FULL_OF_16_BITS = 2**16 - 1
MOST_PIXELS = 120_000_000  # of one image: as many as cameras have, 0.5 GB while it is decoded
LARGE_PIXELS = 2**25  # larger images are decoded one at a time, and at a reduced size
LARGEST_EDGE = 1024  # that any model needs
LONGEST_SIDE = 8  # of an image as a multiple of its shorter side, before it is resized and cut
ROWS = 256  # rows of a large image that are converted at once

_ONE_LARGE = threading.Lock()


class Refused(ValueError):  # noqa: N818 -- the fix is in its words
    """An image that isn't read; says why, as words after "it"."""


class TooLarge(Refused):
    """An image of more pixels than are read; `pixels` says how many."""

    def __init__(self, pixels: int, most: int) -> None:
        super().__init__(f"has {pixels:,} pixels, more than the {most:,} that are read")
        self.pixels = pixels


class UnknownScale(Exception):  # noqa: N818 -- a state, which the caller deals with
    """A deep image whose scale isn't known yet; its argument is the image's largest value, an int or a float."""


@dataclass(frozen=True)
class DeepScale:
    """What is white in the deep images of a data set, which have more than 8 bits per channel: the same in all of them.

    Values above it are white, too.

    Attributes:
        bits: of whole numbers, the highest 8 of which are kept; None if the data set has no deep image of these
        white: the float that becomes 255; None if it has none of floats
    """

    bits: int | None = None
    white: float | None = None

    @classmethod
    def over(cls, largest: Iterable[float]) -> DeepScale:
        """The scale of images with these largest values, whole numbers as int.

        Of whole numbers it is the smallest even number of bits, from 8, that holds all. Floats are in [0, 1] if all
        are, otherwise in the smallest [0, 2**n - 1].
        """
        found = list(largest)
        whole = max((value for value in found if isinstance(value, int)), default=None)
        top = max((value for value in found if isinstance(value, float)), default=None)
        return cls(
            None if whole is None else max(8, whole.bit_length() + whole.bit_length() % 2),
            None if top is None else float(2 ** ceil(top).bit_length() - 1) if top > 1 else 1.0,
        )

    def levels(self, values: np.ndarray) -> np.ndarray:
        """Whole numbers or floats from 0 as uint8."""
        if values.dtype.kind == "f":
            levels = np.rint(values.astype(np.float64) * (255.0 / (self.white or 1.0)))
        else:
            levels = values >> ((self.bits or 8) - 8)
        return np.minimum(levels, 255).astype(np.uint8)


NO_DEEP = DeepScale()  # of a data set without deep images


def read(path: str | Path, mode: str, scale: DeepScale | None, most_pixels: int = MOST_PIXELS) -> Image.Image:
    """The image of a file, see `upright`.

    Raises:
        TooLarge: it has more pixels than `most_pixels`.
        UnknownScale, Refused: see `upright`.
        Exception: of any kind, if the file is no image or a damaged one.
    """
    with Image.open(path, formats=FORMATS) as image:
        if image.width * image.height > most_pixels:
            raise TooLarge(image.width * image.height, most_pixels)
        return upright(image, mode, scale)


def upright(image: Image.Image, mode: str, scale: DeepScale | None) -> Image.Image:
    """An opened image, upright as its EXIF data says; transparent parts become white.

    For an image of more than 2**25 pixels it is the central square, reduced to an edge of 1024 to 2047 pixels if it is
    larger.

    Args:
        image: of any mode that Pillow opens
        mode: "RGB" or "L"
        scale: of the data set's deep images; None if it isn't known yet

    Raises:
        UnknownScale: the image is deep, and `scale` is None.
        Refused: it is deep, with values that are negative or no numbers, or of a kind that `scale` doesn't have.
    """
    if isinstance(image, ImageFile.ImageFile):
        image.filename = ""  # else Pillow maps a turned TIFF into memory with height and width exchanged
        if image.format == "PPM" and (scale is None or scale.bits is not None):
            image = _with_own_numbers(image)
    if image.width * image.height > LARGE_PIXELS:
        with _ONE_LARGE:
            return _reduced(image, mode, scale)
    ImageOps.exif_transpose(image, in_place=True)  # before another mode, which has no EXIF data
    return eight_bit(image, mode, scale)


def eight_bit(image: Image.Image, mode: str, scale: DeepScale | None) -> Image.Image:
    """An image in a mode, not turned; see `upright`."""
    known = _scale_of(image, scale)
    if is_deep(image):
        values, clear = np.asarray(image), image.info.get("transparency")  # of a PNG the one value that is
        levels = known.levels(values)
        image = Image.fromarray(levels if clear is None else np.where(values == clear, np.uint8(255), levels))
    elif has_alpha(image):
        overlay = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", overlay.size, "white"), overlay)
    elif image.mode == "LAB":  # which Pillow converts by colour profiles alone
        profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        image = ImageCms.profileToProfile(image, *profiles, outputMode="RGB") or image
    return image if image.mode == mode else image.convert(mode)


def is_deep(image: Image.Image) -> bool:
    """Whether an image has more than 8 bits per channel, as Pillow opens it."""
    return image.mode.startswith("I") or image.mode == "F"


def has_alpha(image: Image.Image) -> bool:
    """Whether an image may have transparent parts."""
    return image.mode in WITH_ALPHA or "transparency" in image.info


def _with_own_numbers(image: ImageFile.ImageFile) -> Image.Image:
    """A deep PGM with the numbers of its file, as a PNG of these has them: Pillow scales them to 16 bits."""
    given = image.tile[0][3] if is_deep(image) and image.tile else None
    if not isinstance(given, tuple) or image.mode == "F":
        return image
    share = given[-1] / FULL_OF_16_BITS
    return image.point(lambda value: value * share + 0.5)


def with_one_scale(
    reading: Callable[[T, DeepScale | None], R], items: Sequence[T], each: Callable[..., Iterable[Any]] = map
) -> tuple[list[R], DeepScale]:
    """Read all items, deep images with the scale of all of them together: these are read twice.

    Args:
        reading: reads an item with a scale; lets UnknownScale pass
        items: such as paths
        each: like `map`, for example on threads
    """

    def tried(item: T) -> R | UnknownScale:
        try:
            return reading(item, None)
        except UnknownScale as unknown:
            return unknown

    found: list[R | UnknownScale] = list(each(tried, items))
    deep = {index: one.args[0] for index, one in enumerate(found) if isinstance(one, UnknownScale)}
    scale = DeepScale.over(deep.values())
    again = each(lambda index: reading(items[index], scale), deep)
    results = dict(zip(deep, again, strict=True))
    return [results[index] if isinstance(one, UnknownScale) else one for index, one in enumerate(found)], scale


def _reduced(image: Image.Image, mode: str, scale: DeepScale | None) -> Image.Image:
    """The central square, upright, decoded at a fraction of its size where the format can (JPEG), then reduced.

    The fraction depends only on the image, so that training and prediction get the same pixels.
    """
    image.draft(None, (LARGEST_EDGE, LARGEST_EDGE))
    image.load()
    known = _scale_of(image, scale)
    edge = min(image.size)
    factor = max(1, edge // LARGEST_EDGE)
    square = Image.new(mode, (-(-edge // factor), -(-edge // factor)))
    left, above = (image.width - edge) // 2, (image.height - edge) // 2
    for top, strip in _strips(image, (left, above, left + edge, above + edge), ROWS * factor):
        square.paste(eight_bit(strip, mode, known).reduce(factor), (0, top // factor))
    square.getexif()[ExifTags.Base.Orientation] = image.getexif().get(ExifTags.Base.Orientation, 1)
    ImageOps.exif_transpose(square, in_place=True)
    return square


def _strips(image: Image.Image, box: tuple[int, int, int, int], rows: int) -> Iterator[tuple[int, Image.Image]]:
    """A box of an image in strips, each with the number of its first row."""
    left, above, right, below = box
    for top in range(above, below, rows):
        yield top - above, image.crop((left, top, right, min(top + rows, below)))


def _scale_of(image: Image.Image, scale: DeepScale | None) -> DeepScale:
    """The scale for this image, once its values are checked; raises as `upright` does."""
    if not is_deep(image):
        return scale or NO_DEEP
    strips = (np.asarray(strip) for _, strip in _strips(image, (0, 0, *image.size), ROWS))
    ends = np.array([(strip.min(), strip.max()) for strip in strips])
    low, high = ends.min().item(), ends.max().item()
    if not (low >= 0 and high < np.inf):
        wrong = f"from {low:g}" if low < 0 else "that are NaN or infinite"
        raise Refused(f"has values {wrong}, where finite numbers from 0 are read; replace or shift them")
    if scale is None:
        raise UnknownScale(high)
    if (scale.white if image.mode == "F" else scale.bits) is not None:
        return scale
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in FULL_16_BITS):
        return replace(scale, bits=16)
    raise Refused("has values of 32 bits, whose range no training image tells; convert it to 8 bits")
