"""Image files that earlier versions read otherwise than `tuner.trial.pixels` does, of which users of old runs are told.

They guessed the range of 32-bit images for each file, took 16-bit images for ones of full range, and lost the
orientation of images that are deep or have transparent parts; Pillow mixed up the pixels of uncompressed TIFFs that
lie on a side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from PIL import ExifTags, Image

from tuner.trial.pixels import FORMATS, DeepScale, UnknownScale, has_alpha, is_deep, upright

NAMED = 3  # files in a sentence
OTHERWISE = "images have other pixels than when this run began"  # in what is told
FULL = DeepScale(16, 1.0)  # for which the guesses were right


def scale_together(files: Iterable[Path]) -> DeepScale:
    """The scale of the 32-bit images among some files that can be read; those of 16 bits have their full range."""
    largest = []
    for path in files:
        try:
            with Image.open(path, formats=FORMATS) as image:
                if image.mode in ("I", "F"):
                    upright(image, "L", None)
        except UnknownScale as unknown:
            largest.append(unknown.args[0])
        except Exception:  # whoever reads it says what is wrong
            continue
    return DeepScale.over(largest)


def scale_note(files: Sequence[Path], scale: DeepScale, fix: str) -> str | None:
    """A notice with the files that are read otherwise now, with the scale of the data set; None if there are none."""
    found = [path for path in files if _is_read_otherwise(path, scale)]
    if not found:
        return None
    more = [f"and {len(found) - NAMED:,} more"] if len(found) > NAMED else []
    named = ", ".join([*(path.name for path in found[:NAMED]), *more])
    return (
        f"{len(found):,} of {len(files):,} {OTHERWISE}, with a version of tuner that lost their orientation or guessed "
        f"the range of each: {named}; {fix}"
    )


def _is_read_otherwise(path: Path, scale: DeepScale) -> bool:
    with suppress(Exception), Image.open(path, formats=FORMATS) as image:
        if image.mode == "F" and scale.white != FULL.white:
            return True
        if image.mode == "I" or (is_deep(image) and image.mode != "F" and scale.bits not in (None, FULL.bits)):
            return True
        tiff = image.format == "TIFF"  # which Pillow turns as it loads it
        if tiff or is_deep(image) or has_alpha(image):
            orientation: int = image.getexif().get(ExifTags.Base.Orientation, 1)
            return orientation > 4 and image.info.get("compression") == "raw" if tiff else orientation != 1
    return False
