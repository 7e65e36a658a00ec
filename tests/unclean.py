"""A folder of images as people have them: every kind of file that isn't clean, among those that are."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

COLOURS = {"cat \u732b": (210, 50, 40), "dog": (40, 60, 200)}
LEFT_OUT = {  # by path, as a run tells it
    "bird/": "is a class without images",
    "dog/bomb.png": "has 400,000,000 pixels, more than the 120,000,000 that are read (TUNER_MAX_IMAGE_PIXELS sets the limit)",
    "dog/cut off.jpg": "is cut off",
    "dog/cut off.png": "is cut off",
    "dog/empty.jpg": "is empty",
    "dog/gone.jpg": "is a link to nothing",
    "dog/page.jpg": "is no image, or a damaged one",
    "dog/photo.psd": "ends in '.psd', not as images that are read",
    "dog/readme.txt": "ends in '.txt', not as images that are read",
}


def noisy(colour: tuple[int, int, int], seed: int, shape: tuple[int, int] = (24, 20)) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-40, 41, (*shape, 3))
    return Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8))


def jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95, **options)
    return buffer.getvalue()


def bomb(edge: int = 20_000) -> bytes:
    """A PNG of a few hundred bytes that says it has very many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", edge, edge, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


def write_unclean(root: Path, clean: int = 14) -> Path:
    """Two classes of clean images and one of a single image, with everything of `LEFT_OUT` and what is to be read."""
    for seed, (name, colour) in enumerate(COLOURS.items()):
        (root / name).mkdir(parents=True)
        for index in range(clean):
            (root / name / f"photo {index}.jpg").write_bytes(jpeg(noisy(colour, 1000 * seed + index)))
    (root / "bird").mkdir()
    (root / "fox").mkdir()
    noisy((250, 140, 30), 1).save(root / "fox" / "only.png")
    dog = root / "dog"
    whole = jpeg(noisy(COLOURS["dog"], 1))
    (dog / "cut off.jpg").write_bytes(whole[: len(whole) * 3 // 4])
    buffer = io.BytesIO()
    noisy(COLOURS["dog"], 2).save(buffer, "PNG")
    (dog / "cut off.png").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    (dog / "empty.jpg").write_bytes(b"")
    (dog / "gone.jpg").symlink_to(root / "nowhere.jpg")
    (dog / "page.jpg").write_bytes(b"<html>404</html>")
    (dog / "photo.psd").write_bytes(whole)
    (dog / "readme.txt").write_text("pictures of dogs")
    (dog / ".DS_Store").write_bytes(b"1")
    (dog / "bomb.png").write_bytes(bomb())
    for name, write in READ.items():
        write(dog / name)
    return root


def _turned(path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    path.write_bytes(jpeg(noisy(COLOURS["dog"], 20), exif=exif))


READ: dict[str, Callable[[Path], object]] = {  # kinds that are read as any other image
    "16 bit.png": lambda path: Image.fromarray(
        np.random.default_rng(3).integers(0, 65536, (20, 20)).astype(np.uint16)
    ).save(path),
    "cmyk.jpg": lambda path: path.write_bytes(jpeg(noisy(COLOURS["dog"], 21).convert("CMYK"))),
    "palette.png": lambda path: noisy(COLOURS["dog"], 22).convert("P").save(path),
    "grey.png": lambda path: noisy(COLOURS["dog"], 23).convert("L").save(path),
    "see-through.png": lambda path: noisy(COLOURS["dog"], 24).convert("RGBA").save(path),
    "turned.jpg": _turned,
    "long.png": lambda path: noisy(COLOURS["dog"], 25, (1, 20_000)).save(path),
    "\u00fcml\u00e4ut \U0001f436.png": lambda path: noisy(COLOURS["dog"], 26).save(path),
}
