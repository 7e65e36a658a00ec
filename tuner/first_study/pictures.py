"""Decodes every image of a folder once, at a small size: unreadable files, sizes, colours, and data to compare
images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from tuner.machine.hardware import this_machine
from tuner.trial.image_limits import most_pixels_alone, too_large, what_is_wrong

if TYPE_CHECKING:
    from tuner.trial.pixels import DeepScale

T = TypeVar("T")
R = TypeVar("R")

SMALL = 16  # pixels of a thumbnail's edge
DRAFT = 64  # the least pixels to which a JPEG is decoded: a fraction of its size takes a fraction of the time
COLOUR = 3  # the most levels by which a grey image's channels differ
TELL_SECONDS = 0.2


@dataclass(frozen=True)
class Picture:
    """What is kept of an image.

    Attributes:
        size: width and height, upright
        grey: whether it has no colours
        thumbnail: [16, 16, 3] uint8; None for one that is too large to be decoded here
    """

    size: tuple[int, int]
    grey: bool
    thumbnail: npt.NDArray[np.uint8] | None = None


def see(
    files: Sequence[Path], tell: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Picture | str], DeepScale]:
    """The images, decoded by a thread for each CPU, and the scale of the deep ones.

    Args:
        files: image files
        tell: is called with how many are done, of how many

    Returns:
        for an unreadable image the reason, as words after "it".
    """
    from tuner.trial.pixels import with_one_scale

    with most_pixels_alone() as limit, ThreadPoolExecutor(this_machine().cpus) as threads:

        def each(work: Callable[[T], R], items: Collection[T]) -> Iterator[R]:
            told = time.monotonic()
            for done, result in enumerate(threads.map(work, items, chunksize=1), start=1):
                yield result
                if items is files and (time.monotonic() - told > TELL_SECONDS or done == len(files)):
                    told = time.monotonic()
                    tell(done, len(files))

        return with_one_scale(lambda path, scale: _see(path, limit, scale), files, each)


def _see(path: Path, limit: int, scale: DeepScale | None) -> Picture | str:
    from PIL import Image

    from tuner.trial.pixels import FORMATS, LARGE_PIXELS, UnknownScale, upright

    try:
        with Image.open(path, formats=FORMATS) as image:
            size = image.size
            if size[0] * size[1] > limit:
                return too_large(size[0] * size[1], limit)
            image.draft(None, (DRAFT, DRAFT))
            if image.size[0] * image.size[1] > LARGE_PIXELS:  # of another format: each takes seconds and gigabytes
                return Picture(size, grey=image.mode in ("1", "L"))
            before, whole = image.size, upright(image, "RGB", scale)
            size = size if whole.size == before else size[::-1]
            small = whole.resize((SMALL, SMALL), Image.Resampling.BOX)
    except UnknownScale:
        raise
    except Exception as error:  # decoders may raise anything for a damaged file
        return what_is_wrong(path, error)
    thumbnail = np.asarray(small, dtype=np.uint8)
    spread = thumbnail.max(axis=2).astype(int) - thumbnail.min(axis=2)
    return Picture(size, bool(spread.max() <= COLOUR), thumbnail)


def pixels_of(path: Path, scale: DeepScale) -> bytes:
    """All pixels of an image as RGB, with its size; to be compared with another's."""
    from tuner.trial.pixels import read

    with most_pixels_alone() as limit:
        decoded = read(path, "RGB", scale, limit)
    return repr(decoded.size).encode() + decoded.tobytes()
