from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tuner.errors import DataError
from tuner.train.data.images import pixel_key, read_image, resize


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize(
    ("mode", "colour", "suffix", "expected"),
    [
        ("L", 100, "png", [100, 100, 100]),
        ("RGB", (10, 20, 30), "png", [10, 20, 30]),
        ("RGBA", (10, 20, 30, 255), "png", [10, 20, 30]),
        ("RGBA", (10, 20, 30, 0), "png", [255, 255, 255]),
        ("LA", (100, 0), "png", [255, 255, 255]),
        ("1", 1, "png", [255, 255, 255]),
        ("CMYK", (0, 0, 0, 0), "tif", [255, 255, 255]),
        ("I;16", 25700, "png", [100, 100, 100]),
        ("I", 25700, "tif", [100, 100, 100]),
        ("F", 0.5, "tif", [128, 128, 128]),
    ],
)
def test_any_mode_becomes_rgb(tmp_path: Path, mode: str, colour: object, suffix: str, expected: list[int]) -> None:
    path = saved(Image.new(mode, (5, 3), colour), tmp_path / f"image.{suffix}")  # type: ignore[arg-type]
    image = read_image(path)
    assert image.shape == (3, 3, 5)
    assert image.dtype == torch.uint8
    assert image[:, 1, 2].tolist() == expected


def test_a_palette_becomes_rgb_and_rgb_becomes_grey_on_demand(tmp_path: Path) -> None:
    path = saved(Image.new("RGB", (4, 4), (204, 0, 0)).convert("P"), tmp_path / "palette.gif")
    assert read_image(path)[:, 0, 0].tolist() == [204, 0, 0]
    assert read_image(path, channels=1).shape == (1, 4, 4)


def test_an_image_is_turned_as_its_exif_data_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read_image(saved(Image.new("RGB", (8, 4)), tmp_path / "turned.jpg", exif=exif)).shape == (3, 8, 4)


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_a_corrupt_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_image(path)
    assert str(caught.value).startswith(f"an image must be readable, got {path}: ")
    assert str(caught.value).endswith("; repair or remove it")


def test_a_cut_off_file_is_corrupt(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    path = saved(Image.fromarray(noise), tmp_path / "cut.jpg")
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match="an image must be readable"):
        read_image(path)


def test_the_central_square_is_resized() -> None:
    image = torch.zeros(1, 1, 4, 8, dtype=torch.uint8)
    image[..., 2:6] = 200
    assert torch.equal(resize(image, 8), torch.full((1, 1, 8, 8), 200, dtype=torch.uint8))
    assert resize(image, 4).flatten().tolist() == [200] * 16


def test_resizing_one_by_one_is_resizing_all_at_once() -> None:
    images = torch.randint(0, 256, (5, 3, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    together = resize(images, 12)
    assert torch.equal(together, torch.cat([resize(image[None], 12) for image in images]))


def test_keys_tell_pixels_and_shapes_apart() -> None:
    image = torch.arange(12, dtype=torch.uint8).view(1, 3, 4)
    assert pixel_key(image) == pixel_key(image.clone())
    assert pixel_key(image) != pixel_key(image.view(1, 4, 3))
    assert pixel_key(image) != pixel_key(image + 1)
