import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tuner.errors import DataError
from tuner.train.data.images import pixel_key, read_image, resize
from tuner.trial import pixels as module
from tuner.trial.pixels import DeepScale

FULL = DeepScale(16, 1.0)


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
    image = read_image(path, scale=FULL)
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


@pytest.mark.filterwarnings(r"ignore:Image size \(171610000 pixels\) exceeds limit:PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("edge", [13_100, 16_000])  # the second one is too much for Pillow already
def test_a_small_file_of_very_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path, edge: int) -> None:
    path = saved(Image.new("1", (edge, edge)), tmp_path / "bomb.png")
    assert path.stat().st_size < 50_000
    with pytest.raises(DataError) as caught:
        read_image(path)
    assert str(caught.value) == (
        f"an image must have at most 120,000,000 pixels, got {path} with {edge * edge:,}, which would fill the memory; "
        "remove it, or set TUNER_MAX_IMAGE_PIXELS to read it"
    )


def test_the_limit_of_pixels_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(Image.new("RGB", (12, 10)), tmp_path / "image.png")
    monkeypatch.setenv("TUNER_MAX_IMAGE_PIXELS", "119")
    with pytest.raises(DataError, match=r"^an image must have at most 119 pixels, got .*image\.png with 120, "):
        read_image(path)
    monkeypatch.setenv("TUNER_MAX_IMAGE_PIXELS", "120")
    assert read_image(path).shape == (3, 10, 12)
    monkeypatch.setenv("TUNER_MAX_IMAGE_PIXELS", "lots")
    with pytest.raises(DataError, match=r"^TUNER_MAX_IMAGE_PIXELS must be a whole number from 1, got 'lots'; correct"):
        read_image(path)


MODES: dict[str, tuple[object, str]] = {
    **{"L": (100, "png"), "RGB": ((10, 20, 30), "jpg"), "RGBA": ((10, 20, 30, 100), "png"), "LA": ((100, 9), "png")},
    **{"1": (1, "png"), "CMYK": ((0, 90, 0, 0), "tif"), "I;16": (25700, "png"), "I": (25700, "tif"), "F": (0.5, "tif")},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_large_image_has_the_colours_of_a_small_one(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    colour, suffix = MODES[mode]
    path = saved(Image.new(mode, (80, 70), colour), tmp_path / f"image.{suffix}")  # type: ignore[arg-type]
    whole = read_image(path, scale=FULL)
    monkeypatch.setattr(module, "LARGE_PIXELS", 1000)
    monkeypatch.setattr(module, "LARGEST_EDGE", 16)
    monkeypatch.setattr(module, "ROWS", 3)
    large = read_image(path, scale=FULL)
    assert large.shape == (3, 18, 18)  # a quarter
    assert int((large.int() - whole[:, :1, :1].int()).abs().max()) <= (1 if suffix == "jpg" else 0)


def test_a_large_image_is_reduced_as_it_would_be_resized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ramp = np.add.outer(np.arange(96), np.arange(128)).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    for suffix in ("png", "jpg"):
        path = saved(Image.fromarray(np.stack([ramp] * 3, 2)), tmp_path / f"ramp.{suffix}", exif=exif)
        expected = resize(read_image(path)[None], 16)[0].int()
        with monkeypatch.context() as patched:
            patched.setattr(module, "LARGE_PIXELS", 1000)
            patched.setattr(module, "LARGEST_EDGE", 16)
            found = resize(read_image(path)[None], 16)[0].int()
        assert int((found - expected).abs().max()) <= 3
        assert expected[0, 0, 0] - expected[0, 0, -1] > 50  # turned


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")  # Pillow's, of what it reads all the same
@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tif", "webp", "ppm"])
def test_a_damaged_file_of_any_kind_is_read_or_named(tmp_path: Path, suffix: str) -> None:
    generator = np.random.default_rng(0)
    noise = Image.fromarray(generator.integers(0, 256, (12, 12, 3)).astype(np.uint8))
    content = np.frombuffer(saved(noise, tmp_path / f"whole.{suffix}").read_bytes(), np.uint8)
    path, refused = tmp_path / f"damaged.{suffix}", 0
    for _ in range(150):
        damaged = content.copy()
        damaged[generator.integers(0, min(len(content), 80), 4)] = generator.integers(0, 256, 4)
        path.write_bytes(damaged.tobytes()[: int(generator.integers(len(content) // 2, len(content) + 1))])
        try:
            assert read_image(path).dtype == torch.uint8
        except DataError as error:
            refused += 1
            assert str(path) in str(error)  # noqa: PT017
    assert refused > 20


def test_a_file_that_runs_another_program_is_no_image(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "EPS")
    (tmp_path / "picture.png").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"it is no image, or a damaged one; repair or remove it$"):
        read_image(tmp_path / "picture.png")


PEAK = """
import sys
from pathlib import Path
from tuner.train.data.images import read_image, resize
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024
before = peak()
for path in sys.argv[1:]:
    assert resize(read_image(Path(path))[None], 64).shape == (1, 3, 64, 64)
    print(peak() - before)
"""


@pytest.mark.slow
def test_a_photo_of_50_megapixels_takes_little_more_than_its_decoding(tmp_path: Path) -> None:
    photo = Image.new("RGB", (8192, 6144), (90, 120, 40))
    paths = [str(saved(photo, tmp_path / f"photo.{suffix}", compress_level=1)) for suffix in ("jpg", "png")]
    done = subprocess.run([sys.executable, "-c", PEAK, *paths], capture_output=True, text=True, check=True)
    reduced, whole = map(int, done.stdout.split())  # in MB
    assert reduced < 100
    assert whole < 300


def test_the_transparent_value_of_a_deep_png_is_white(tmp_path: Path) -> None:
    deep = Image.fromarray(np.array([[0, 65535, 32768]], dtype=np.uint16))
    saved(deep, tmp_path / "clear.png", transparency=0)
    assert read_image(tmp_path / "clear.png", channels=1, scale=DeepScale(16)).flatten().tolist() == [255, 255, 128]
    saved(deep, tmp_path / "opaque.png")
    assert read_image(tmp_path / "opaque.png", channels=1, scale=DeepScale(16)).flatten().tolist() == [0, 255, 128]
