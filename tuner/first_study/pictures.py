"""Decodes every image of a folder once, at a small size: unreadable files, sizes, colours, and data to compare
images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tuner.machine import this_machine
from tuner.trial.image_limits import FORMATS, most_pixels_alone, too_large, what_is_wrong

if TYPE_CHECKING:
    from PIL import Image

SMALL = 16  # pixels of a thumbnail's edge
DRAFT = 64  # the least pixels to which a JPEG is decoded: a fraction of its size takes a fraction of the time
LARGEST = 2**25  # pixels; larger images of other formats aren't decoded, because each takes seconds and gigabytes
COLOUR = 3  # the most levels by which a grey image's channels differ
TELL_SECONDS = 0.2


@dataclass(frozen=True)
class Picture:
    """What is kept of an image.

    Attributes:
        size: width and height
        grey: whether it has no colours
        thumbnail: [16, 16, 3] uint8; None for one that is too large to be decoded here
    """

    size: tuple[int, int]
    grey: bool
    thumbnail: npt.NDArray[np.uint8] | None = None


def see(files: Sequence[Path], tell: Callable[[int, int], None] = lambda done, total: None) -> list[Picture | str]:
    """The images, decoded by a thread for each CPU; for an unreadable one the reason, as words after "it".

    Args:
        files: image files
        tell: is called with how many are done, of how many
    """
    found: list[Picture | str] = []
    told = time.monotonic()
    with most_pixels_alone() as limit, ThreadPoolExecutor(this_machine().cpus) as threads:
        for picture in threads.map(lambda path: _see(path, limit), files, chunksize=1):
            found.append(picture)
            if time.monotonic() - told > TELL_SECONDS or len(found) == len(files):
                told = time.monotonic()
                tell(len(found), len(files))
    return found


def _see(path: Path, limit: int) -> Picture | str:
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as image:
            size = image.size
            if size[0] * size[1] > limit:
                return too_large(size[0] * size[1], limit)
            image.draft("RGB", (DRAFT, DRAFT))
            if image.size[0] * image.size[1] > LARGEST:
                return Picture(size, grey=image.mode in ("1", "L"))
            small = _rgb(image).resize((SMALL, SMALL), Image.Resampling.BOX)
    except Exception as error:  # decoders may raise anything for a damaged file
        return what_is_wrong(path, error)
    thumbnail = np.asarray(small, dtype=np.uint8)
    spread = thumbnail.max(axis=2).astype(int) - thumbnail.min(axis=2)
    return Picture(size, bool(spread.max() <= COLOUR), thumbnail)


def _rgb(image: Image.Image) -> Image.Image:
    """The image as 8-bit RGB; if it has more bits, its range is scaled to 8 bits."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        top = max(1.0, float(values.max(initial=0.0)))
        return Image.fromarray((values * (255 / top)).clip(0, 255).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def pixels_of(path: Path) -> bytes:
    """All pixels of an image as RGB, with its size; to be compared with another's."""
    from PIL import Image

    with most_pixels_alone(), Image.open(path, formats=FORMATS) as image:
        decoded = _rgb(image)
        return repr(decoded.size).encode() + decoded.tobytes()
