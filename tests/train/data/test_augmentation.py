from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from tuner.train.data import Normalisation
from tuner.train.data.augmentation import Augmentation
from tuner.train.randomness import seeded
from tuner.train.without_compiler import compiler_not_needed
from tuner.trial.image_hyperparameters import CHANGES_IMAGES

with compiler_not_needed():
    from torchvision.transforms.v2 import functional

EVERYTHING = Augmentation(crop_padding=2, flip=0.5, color_jitter=0.4, random_erasing=0.5)
PARTS = {
    "crop": Augmentation(crop_padding=2),
    "flip": Augmentation(flip=0.5),
    "jitter": Augmentation(color_jitter=0.4),
    "erasing": Augmentation(random_erasing=0.5),
    "resized crop": Augmentation(random_resized_crop=0.2),
    "everything": EVERYTHING,
}
every_part = pytest.mark.parametrize("augmentation", PARTS.values(), ids=PARTS)


def as_stored(images: Tensor) -> Tensor:
    """Stands for a normalisation that changes no value."""
    return images.float()


def augmented(
    augmentation: Augmentation, images: Tensor, seed: int = 0, normalise: Callable[[Tensor], Tensor] = as_stored
) -> Tensor:
    with seeded(seed):
        return augmentation(images, normalise)


def random_images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def numbered(channels: int, height: int, width: int) -> Tensor:
    """[C, H, W] uint8 whose pixels are 1, 2, 3 ..., so that zeros come from outside only."""
    return torch.arange(1, channels * height * width + 1).view(channels, height, width).to(torch.uint8)


def shifted(image: Tensor, padding: int, top: int, left: int) -> Tensor:
    """[C, H, W]: torchvision's pad and crop."""
    height, width = image.shape[1:]
    crop: Tensor = functional.crop(functional.pad(image, [padding]), top, left, height, width)
    return crop


def variants(image: Tensor, padding: int) -> Tensor:
    """[2 (2p + 1)^2, C, H, W]: every shifted image, then the mirror image of each."""
    places = range(2 * padding + 1)
    crops = torch.stack([shifted(image, padding, top, left) for top in places for left in places])
    return torch.cat([crops, crops.flip(-1)])


def choices(images: Tensor, image: Tensor, padding: int) -> Tensor:
    """[N]: which of the variants each image is; fails where one is none of them."""
    same = (images.unsqueeze(1) == variants(image, padding)).flatten(2).all(2)
    assert torch.equal(same.sum(1), torch.ones(len(images), dtype=torch.int64))
    return same.int().argmax(1)


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 5, 5), (1, 4, 6), (3, 6, 3)])
@pytest.mark.parametrize("flip", [0.0, 0.25])
def test_every_shift_occurs_equally_often_and_mirrored_as_often_as_asked(
    channels: int, height: int, width: int, flip: float
) -> None:
    image, count = numbered(channels, height, width), 18_000
    result = augmented(Augmentation(crop_padding=1, flip=flip), image.expand(count, -1, -1, -1))
    occurred = choices(result, image, 1).bincount(minlength=18).double() / count
    expected = torch.tensor([1 - flip] * 9 + [flip] * 9, dtype=torch.float64) / 9
    assert torch.all((occurred - expected).abs() <= 5 * (expected * (1 - expected) / count).sqrt())


def test_a_crop_alone_is_torchvisions_at_some_place() -> None:
    images = numbered(1, 6, 6).repeat(500, 1, 1, 1)
    places = choices(augmented(Augmentation(crop_padding=3), images), images[0], 3)
    assert set(places.tolist()) == set(range(49))


def test_padding_may_exceed_the_image() -> None:
    image = numbered(1, 2, 2)
    result = augmented(Augmentation(crop_padding=3), image.expand(2000, -1, -1, -1))
    empty = (result == 0).flatten(1).all(1)
    kinds = variants(image, 3)[:49]
    assert (result.unsqueeze(1) == kinds).flatten(2).all(2).any(1).all()
    assert float(empty.double().mean()) == pytest.approx(40 / 49, abs=5 * 0.0087)


@pytest.mark.parametrize("shape", [(64, 1, 28, 28), (7, 3, 5, 8)])
def test_a_flip_that_is_certain_mirrors_every_image(shape: tuple[int, ...]) -> None:
    images = random_images(*shape)
    assert torch.equal(augmented(Augmentation(flip=1.0), images), images.flip(-1).float())


def test_a_flip_of_a_half_mirrors_half_of_the_images() -> None:
    images = numbered(1, 3, 3).expand(10_000, -1, -1, -1)
    mirrored = choices(augmented(Augmentation(flip=0.5), images), images[0], 0)
    assert float(mirrored.double().mean()) == pytest.approx(0.5, abs=5 * 0.005)


def factors_of(augmentation: Augmentation, count: int, channels: int, seed: int) -> Tensor:
    """[3, N]: brightness, contrast and saturation as drawn, told from what happens to two pixels far from 0 and 1."""
    two = torch.tensor([[[0.30, 0.34]], [[0.32, 0.36]], [[0.26, 0.38]]])[:channels]
    result = augmented(augmentation, two.repeat(count, 1, 1, 1), seed)
    weights = torch.tensor([0.2989, 0.587, 0.114] if channels == 3 else [1.0]).view(-1, 1, 1)
    grey, grey_after = (weights * two).sum(0), (weights * result).sum(1)
    brightness = grey_after.mean((1, 2)) / grey.mean()
    contrast = (grey_after[:, 0, 1] - grey_after[:, 0, 0]) / (grey[0, 1] - grey[0, 0]) / brightness
    if channels == 1:
        return torch.stack([brightness, contrast, torch.ones(count)])
    colour = (result[:, 0, 0, 1] - result[:, 2, 0, 1]) / (two[0, 0, 1] - two[2, 0, 1])
    return torch.stack([brightness, contrast, colour / brightness / contrast])


@pytest.mark.parametrize("channels", [1, 3])
def test_colour_factors_are_uniform_and_drawn_for_each_image(channels: int) -> None:
    count = 4000
    factors = factors_of(Augmentation(color_jitter=0.4), count, channels, seed=0)[: 3 if channels == 3 else 2]
    assert float(factors.min()) >= 0.6 - 1e-3
    assert float(factors.max()) <= 1.4 + 1e-3
    assert factors.mean(1).tolist() == pytest.approx([1.0] * len(factors), abs=5 * 0.8 / (12 * count) ** 0.5)
    assert factors.std(1).tolist() == pytest.approx([0.8 / 12**0.5] * len(factors), rel=0.05)
    assert torch.corrcoef(factors).triu(1).abs().max() < 5 / count**0.5


@pytest.mark.parametrize("shape", [(64, 1, 28, 28), (64, 3, 32, 32), (16, 3, 9, 14)])
@pytest.mark.parametrize("stored_as_float", [False, True])
def test_colours_are_torchvisions_with_the_same_factors(shape: tuple[int, ...], stored_as_float: bool) -> None:
    images, augmentation = random_images(*shape), Augmentation(color_jitter=0.4)
    result = augmented(augmentation, images.float() / 255 if stored_as_float else images, seed=3)
    for image, ours, factors in zip(
        images, result, factors_of(augmentation, shape[0], shape[1], seed=3).T, strict=True
    ):
        brightness, contrast, saturation = factors.tolist()
        theirs = functional.adjust_brightness(image.float() / 255, brightness)
        theirs = functional.adjust_saturation(functional.adjust_contrast(theirs, contrast), saturation)
        assert float((ours - theirs).abs().max()) < 0.25 / 255


def test_jitter_above_1_draws_no_negative_factor() -> None:
    images = torch.full((1000, 1, 2, 2), 0.25)
    result = augmented(Augmentation(color_jitter=2.0), images)
    assert result.min() > 0
    assert float(result.mean()) == pytest.approx(0.25 * 1.5, rel=0.1)


def test_jittered_images_are_normalised_like_stored_ones() -> None:
    images = random_images(8, 3, 10, 10)
    normalisation = Normalisation.of(images)
    jittered = augmented(Augmentation(color_jitter=1e-6), images, normalise=normalisation)
    assert torch.allclose(jittered, normalisation(images), atol=1e-4)


def erased_pixels(augmentation: Augmentation, count: int, height: int, width: int, channels: int = 3) -> Tensor:
    """[N, H, W] bool; fails where the channels differ, or where another pixel was changed."""
    images = random_images(count, channels, height, width).float() + 1
    result = augmented(augmentation, images)
    erased = result == 0
    assert torch.equal(erased, erased[:, :1].expand_as(erased))
    assert torch.equal(result[~erased], images[~erased])
    return erased[:, 0]


def sides(erased: Tensor) -> tuple[Tensor, Tensor]:
    """Height and width [N] of what is erased; fails where it is not one rectangle."""
    rows, columns = erased.any(2), erased.any(1)
    assert torch.equal(erased, rows.unsqueeze(2) & columns.unsqueeze(1))
    for line in (rows, columns):
        edges = torch.nn.functional.pad(line.int(), (1, 1)).diff()
        assert torch.equal((edges == 1).sum(1), line.any(1).long())
    return rows.sum(1), columns.sum(1)


@pytest.mark.parametrize(("height", "width"), [(28, 28), (32, 32), (24, 40), (8, 8), (60, 6), (4, 100), (1, 1)])
@pytest.mark.parametrize("channels", [1, 3])
def test_one_rectangle_of_2_to_33_percent_is_erased(height: int, width: int, channels: int) -> None:
    tall, wide = sides(erased_pixels(Augmentation(random_erasing=1.0), 800, height, width, channels))
    assert torch.all((tall >= 1) & (wide >= 1))
    rounding = (tall + wide) / 2 + 0.25
    assert torch.all(tall * wide >= 0.02 * height * width - rounding)
    assert torch.all(tall * wide <= 0.33 * height * width + rounding)


def test_area_is_uniform_and_aspect_log_uniform() -> None:
    count, size = 4000, 48
    tall, wide = (
        side.double() for side in sides(erased_pixels(Augmentation(random_erasing=1.0), count, size, size, 1))
    )
    share, aspect = tall * wide / size**2, (tall / wide).log() / torch.tensor(3.3).log()
    quarters = ((share - 0.02) / 0.31 * 4).clamp(0, 3.999).long().bincount() / count
    assert torch.all((quarters - 0.25).abs() < 0.04)
    assert torch.all((tall - 0.5) / (wide + 0.5) <= 3.3)
    assert torch.all((wide - 0.5) / (tall + 0.5) <= 3.34)  # 0.3 is a little less than 1 / 3.3
    quarters = ((aspect + 1) * 2).clamp(0, 3.999).long().bincount() / count
    assert torch.all((quarters - 0.25).abs() < 0.04)


@pytest.mark.parametrize(("height", "width"), [(16, 320), (320, 16)])
def test_area_is_uniform_in_long_images_too(height: int, width: int) -> None:
    tall, wide = sides(erased_pixels(Augmentation(random_erasing=1.0), 2000, height, width, 1))
    share = tall * wide / (height * width)
    quarters = ((share - 0.02) / 0.31 * 4).clamp(0, 3.999).long().bincount() / 2000
    assert torch.all((quarters - 0.25).abs() < 0.04)


def test_as_many_images_are_erased_as_asked() -> None:
    erased = erased_pixels(Augmentation(random_erasing=0.25), 10_000, 16, 16).flatten(1).any(1)
    assert float(erased.double().mean()) == pytest.approx(0.25, abs=5 * 0.0043)


def test_rectangles_lie_anywhere() -> None:
    erased = erased_pixels(Augmentation(random_erasing=1.0), 5000, 20, 30)
    rows, columns = erased.any(2), erased.any(1)
    first = torch.stack([rows.int().argmax(1), columns.int().argmax(1)])  # argmax gives the first of equals
    assert torch.corrcoef(first.double())[0, 1].abs() < 0.1
    for line in (rows, columns):
        occurs = line.double().mean(0)
        assert occurs.min() > 0.02
        assert torch.allclose(occurs, occurs.flip(0), atol=0.05)


def test_erased_pixels_have_the_mean_colour() -> None:
    images = random_images(32, 3, 16, 16)
    normalisation = Normalisation.of(images)
    with_it = augmented(Augmentation(random_erasing=1.0), images, normalise=normalisation)
    changed = with_it != normalisation(images)
    assert changed.flatten(1).any(1).all()
    assert torch.equal(with_it[changed], torch.zeros(int(changed.sum())))


def test_switched_off_only_the_normalisation_is_left() -> None:
    off, images, normalised = Augmentation(), random_images(4, 1, 8, 8), torch.zeros(4, 1, 8, 8)
    state = torch.get_rng_state()
    assert not off.active
    assert off(images, lambda given: normalised if given is images else given) is normalised
    assert torch.equal(torch.get_rng_state(), state)


def test_each_augmentation_is_tested_here_and_known_to_change_images() -> None:
    names = {field.name for field in fields(Augmentation)} - {"policy"}  # which has tests of its own
    assert {name for part in PARTS.values() for name in names if getattr(part, name)} == names
    assert {*CHANGES_IMAGES} == names | {"auto_augment", "mixup", "cutmix"}


@every_part
def test_each_part_makes_it_active(augmentation: Augmentation) -> None:
    assert augmentation.active is True
    assert not torch.equal(augmented(augmentation, random_images(8, 3, 8, 8)), random_images(8, 3, 8, 8).float())


@every_part
@pytest.mark.parametrize("shape", [(64, 1, 28, 28), (1, 3, 32, 32), (5, 3, 6, 9), (0, 3, 8, 8)])
@pytest.mark.parametrize("stored_as_float", [False, True])
def test_the_result_is_float32_of_the_same_shape_and_the_input_is_untouched(
    augmentation: Augmentation, shape: tuple[int, ...], stored_as_float: bool
) -> None:
    images = random_images(*shape).float() / 255 if stored_as_float else random_images(*shape)
    before = images.clone()
    result = augmented(augmentation, images)
    assert (result.dtype, result.shape) == (torch.float32, images.shape)
    assert result.is_contiguous()
    assert torch.equal(images, before)
    assert torch.equal(augmented(augmentation, images), result)


@every_part
def test_another_seed_changes_the_result(augmentation: Augmentation) -> None:
    images = random_images(16, 3, 12, 12)
    assert not torch.equal(augmented(augmentation, images, seed=0), augmented(augmentation, images, seed=1))


@every_part
def test_draws_depend_neither_on_the_images_nor_on_one_another(augmentation: Augmentation) -> None:
    images, others = random_images(6, 3, 12, 12), random_images(6, 3, 12, 12, seed=1)
    others[2] = images[2]
    with seeded(0):
        first, after_first = augmentation(images, as_stored), torch.get_rng_state()
    with seeded(0):
        second, after_second = augmentation(others, as_stored), torch.get_rng_state()
    assert torch.equal(first[2], second[2])
    assert torch.equal(after_first, after_second)


@every_part
@pytest.mark.parametrize("stored_as_float", [False, True])
def test_the_memory_format_does_not_matter(augmentation: Augmentation, stored_as_float: bool) -> None:
    images = random_images(8, 3, 10, 12).float() / 255 if stored_as_float else random_images(8, 3, 10, 12)
    expected = augmented(augmentation, images)
    strided = torch.zeros(8, 3, 20, 24, dtype=images.dtype)[:, :, ::2, ::2].copy_(images)
    for laid_out in (images.contiguous(memory_format=torch.channels_last), strided):
        assert not laid_out.is_contiguous()
        result = augmented(augmentation, laid_out)
        assert torch.allclose(result, expected, atol=1e-6)
        if augmentation.crop_padding or augmentation.flip:
            assert result.is_contiguous()


def test_uint8_and_float_images_are_changed_alike() -> None:
    images = random_images(16, 3, 12, 12)
    normalisation = Normalisation.of(images)
    stored, floats = (augmented(EVERYTHING, kind, normalise=normalisation) for kind in (images, images.float() / 255))
    assert torch.allclose(stored, floats, atol=1e-4)


def test_no_value_is_read_back_from_the_device() -> None:
    images = torch.empty(64, 3, 32, 32, dtype=torch.uint8, device="meta")  # has no values: reading one raises
    assert EVERYTHING(images, as_stored).shape == images.shape


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_not_waited_for() -> None:
    images = random_images(64, 3, 32, 32).cuda()
    normalisation = Normalisation.of(images)
    normalisation(images)  # its constants are copied once
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = EVERYTHING(images, normalisation)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (result.device, result.shape) == (images.device, images.shape)
