"""Pictures that look like something: a few blurred blobs of colour, no two alike."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter


def scene(seed: int, size: tuple[int, int] = (96, 72), *, grey: bool = False) -> Image.Image:
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(1))
    return image.convert("L") if grey else image


def write_scenes(folder: Path, count: int, first: int, *, size: tuple[int, int] = (96, 72), grey: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        scene(seed, size, grey=grey).save(folder / f"{seed}.jpg", quality=90)
    return folder
