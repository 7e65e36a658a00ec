"""Which image files are read: how many pixels one may have, and what is wrong with the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import DataError, one_line

MAX_PIXELS_VARIABLE = "TUNER_MAX_IMAGE_PIXELS"


def most_pixels() -> int:
    """The most pixels that an image may have: $TUNER_MAX_IMAGE_PIXELS, else 120 million.

    Raises:
        DataError: the variable isn't a whole number from 1.
    """
    from tuner.trial.pixels import MOST_PIXELS

    text = os.environ.get(MAX_PIXELS_VARIABLE) or str(MOST_PIXELS)
    if not text.isdecimal() or int(text) < 1:
        raise DataError(f"{MAX_PIXELS_VARIABLE} must be a whole number from 1, got {text!r}; correct or unset it")
    return int(text)


@contextmanager
def most_pixels_alone() -> Iterator[int]:
    """`most_pixels`; within the block this limit applies when images are opened, and not Pillow's own."""
    from PIL import Image

    limit, before = most_pixels(), Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        yield limit
    finally:
        Image.MAX_IMAGE_PIXELS = before


def too_large(pixels: int, limit: int) -> str:
    """What is wrong with an image of this many pixels, after "it"."""
    from tuner.trial.pixels import TooLarge

    return f"{TooLarge(pixels, limit)} ({MAX_PIXELS_VARIABLE} sets the limit)"


def what_is_wrong(path: Path, error: Exception) -> str:
    """What is wrong with a file that a decoder refuses, after "it"."""
    if path.stat().st_size == 0:
        return "is empty"
    if type(error).__name__ == "UnidentifiedImageError":  # Pillow's, which isn't imported for this
        return "is no image, or a damaged one"
    if type(error).__name__ == "Refused":  # of tuner.trial.pixels, which imports Pillow
        return str(error)
    cut_off = "truncated" in str(error).lower() or isinstance(error, EOFError)
    return "is cut off" if cut_off else f"is damaged: {one_line(str(error)) or type(error).__name__}"
