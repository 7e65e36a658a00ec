"""Held against torchvision's own transforms, image by image."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.data.test_augmentation import as_stored, augmented, random_images
from tests.train.pretend import pretending
from tuner.train.data.augmentation import Augmentation, random_boxes, resized_crops
from tuner.train.data.operations import NAMES, operate
from tuner.train.data.policies import SIGNED, STRENGTHS, Policy
from tuner.train.randomness import seeded
from tuner.train.without_compiler import compiler_not_needed

with compiler_not_needed():
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import InterpolationMode, functional

CPU = torch.device("cpu")
KINDS = {"trivial": Policy("trivial"), "rand": Policy("rand", 2, 9)}
THEIRS: dict[str, Any] = {"trivial": v2.TrivialAugmentWide(), "rand": v2.RandAugment()}
every_kind = pytest.mark.parametrize("kind", KINDS)


def photo(channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """[C, H, W] uint8 with slopes, edges and noise, none of its channels from black to white."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.linspace(20, 140, height)[:, None] + torch.linspace(0, 60, width)
    noise = torch.randint(-15, 16, (channels, height, width), generator=generator)
    image = rows + noise
    image[:, height // 3 : height // 2] += 40
    return image.clamp(10, 240).to(torch.uint8)


def torchvisions(image: Tensor, name: str, magnitude: float) -> Tensor:
    """What its policies make of one image, by the method that all of them call."""
    policy = THEIRS["trivial"]
    result: Tensor = policy._apply_image_or_video_transform(
        image, name, magnitude, interpolation=InterpolationMode.NEAREST, fill={Tensor: None, type(image): None}
    )
    return result


def magnitudes_of(kind: str, name: str, height: int, width: int) -> Iterator[float]:
    """All that torchvision may draw for an operation."""
    space, signed = THEIRS[kind]._AUGMENTATION_SPACE[name]
    values = space(STRENGTHS, height, width)
    for value in [0.0] if values is None else values.tolist():
        yield value
        if signed:
            yield -value


@every_kind
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 34)])
def test_each_operation_is_torchvisions_at_each_magnitude(kind: str, name: str, shape: tuple[int, int, int]) -> None:
    image = photo(*shape)
    magnitudes = list(magnitudes_of(kind, name, *shape[1:]))
    images = image.expand(len(magnitudes), -1, -1, -1)
    chosen = torch.full((len(magnitudes),), NAMES.index(name))
    ours = operate(images, chosen, torch.tensor(magnitudes))
    for one, magnitude in zip(ours, magnitudes, strict=True):
        theirs = torchvisions(image, name, magnitude)
        if name.startswith(("Shear", "Rotate")):  # a place in the middle of two pixels may become either
            nearly = [torchvisions(image, name, magnitude + change) for change in (-1e-4, 0, 1e-4)]
            assert bool((one == torch.stack(nearly)).any(0).all()), magnitude
            assert float((one != theirs).float().mean()) <= 0.05, magnitude
        else:
            apart = (one.int() - theirs.int()).abs()
            assert int(apart.max()) <= (name in ("Color", "Contrast")), magnitude  # a grey pixel stays as it is here


def test_each_image_has_an_operation_and_a_magnitude_of_its_own() -> None:
    images = torch.stack([photo(3, 24, 24, seed) for seed in range(60)])
    with seeded(3):
        chosen, magnitudes = KINDS["trivial"].draw(images)
        after = operate(images, chosen, magnitudes)
    assert len(set(chosen.tolist())) > 10
    for image, one, number, magnitude in zip(images, after, chosen.tolist(), magnitudes.tolist(), strict=True):
        theirs = torchvisions(image, NAMES[number], magnitude)
        assert float(((one.int() - theirs.int()).abs() > 1).any(0).float().mean()) <= 0.01, NAMES[number]


@every_kind
@pytest.mark.parametrize("shape", [(40, 3, 16, 16), (40, 1, 9, 14), (3, 4, 8, 8), (5, 3, 2, 2), (0, 3, 8, 8)])
def test_a_device_that_isnt_waited_for_gives_the_same_pixels(kind: str, shape: tuple[int, ...]) -> None:
    images = random_images(*shape)
    with seeded(1):
        on_host = KINDS[kind](images)
    with pretending() as gpu:
        there = images.to("cuda")
        gpu.clear()
        with seeded(1):
            result = KINDS[kind](there)
        assert (sum(gpu.syncs.values()), sum(gpu.mixed.values())) == (0, 0)
        back = result.cpu()
    assert torch.equal(back, on_host)


@every_kind
def test_all_operations_are_drawn_equally_often_with_torchvisions_magnitudes(kind: str) -> None:
    count, images = 14_000, torch.zeros(14_000, 1, 20, 30, dtype=torch.uint8)
    with seeded(0):
        chosen, magnitudes = KINDS[kind].draw(images)
    occurred = chosen.bincount(minlength=14).double() / count
    assert torch.all((occurred - 1 / 14).abs() <= 5 * (13 / 14**2 / count) ** 0.5)
    for number, name in enumerate(NAMES):
        drawn = magnitudes[chosen == number]
        allowed = list(magnitudes_of(kind, name, 20, 30))
        if kind == "rand":
            space, signed = THEIRS[kind]._AUGMENTATION_SPACE[name]
            values = space(STRENGTHS, 20, 30)
            one = 0.0 if values is None else float(values[9])
            allowed = [one, -one] if signed else [one]
        assert {round(value, 4) for value in drawn.tolist()} == {round(value, 4) for value in allowed}, name
        if number in SIGNED:
            assert float((drawn < 0).double().mean()) == pytest.approx(0.5, abs=0.1)
        else:
            assert (drawn >= 0).all()


def test_the_rounds_of_rand_follow_one_another() -> None:
    images = torch.stack([photo(3, 16, 16, seed) for seed in range(30)])
    one, three = Policy("rand", 1, 9), Policy("rand", 3, 9)
    with seeded(5):
        expected = one(one(one(images)))
    with seeded(5):
        assert torch.equal(three(images), expected)
    assert not torch.equal(expected, images)


@every_kind
def test_float_images_have_the_levels_of_stored_ones(kind: str) -> None:
    images = random_images(30, 3, 12, 12)
    augmentation = Augmentation(policy=KINDS[kind])
    stored = augmented(augmentation, images)
    floats = augmented(augmentation, images.float() / 255)
    assert torch.allclose(floats * 255, stored, atol=1e-3)


@pytest.mark.parametrize("policy", [*KINDS.values(), None])
def test_the_input_is_untouched_and_memory_formats_dont_matter(policy: Policy | None) -> None:
    augmentation = Augmentation(random_resized_crop=0.2, policy=policy)
    images = random_images(12, 3, 10, 14)
    before = images.clone()
    expected = augmented(augmentation, images)
    assert torch.equal(images, before)
    assert expected.shape == images.shape
    assert torch.equal(augmented(augmentation, images.contiguous(memory_format=torch.channels_last)), expected)
    assert augmentation.active


def test_no_value_is_read_back_from_the_device() -> None:
    images = torch.empty(8, 3, 16, 16, dtype=torch.uint8, device="meta")  # has no values: reading one raises
    everything = Augmentation(random_resized_crop=0.08, policy=KINDS["rand"])
    assert everything(images, as_stored).shape == images.shape


# Random resized crops


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 33)])
def test_crops_are_resized_as_torchvision_resizes_them(shape: tuple[int, int, int]) -> None:
    count, (_, height, width) = 40, shape
    image = photo(*shape)
    with seeded(0):
        boxes = random_boxes(count, height, width, 0.08, CPU)
    images = image.expand(count, -1, -1, -1)
    stored, floats = resized_crops(images, boxes), resized_crops(images.float(), boxes)
    for place, box in enumerate(boxes.T.int().tolist()):
        theirs = functional.resized_crop(image.float(), *box, [height, width], antialias=True)
        assert float((floats[place] - theirs).abs().max()) < 0.02
        whole = functional.resized_crop(image, *box, [height, width], antialias=True)
        assert int((stored[place].int() - whole.int()).abs().max()) <= 1


def drawn_by_torchvision(shape: tuple[int, int], least: float, count: int) -> Tensor:
    crop = v2.RandomResizedCrop(list(shape), scale=(least, 1.0))
    image = [torch.empty(1, *shape)]
    boxes = [crop.make_params(image) for _ in range(count)]
    return torch.tensor([[box[name] for name in ("top", "left", "height", "width")] for box in boxes]).T.double()


@pytest.mark.parametrize("shape", [(64, 64), (30, 90), (90, 30), (24, 32)])
@pytest.mark.parametrize("least", [0.08, 0.5, 1.0])
def test_boxes_are_drawn_as_torchvision_draws_them(shape: tuple[int, int], least: float) -> None:
    count = 2500
    with seeded(0):
        ours = random_boxes(20 * count, *shape, least, CPU).double()
        theirs = drawn_by_torchvision(shape, least, count)
    top, left, tall, wide = ours
    assert bool(((top >= 0) & (left >= 0) & (tall >= 1) & (wide >= 1)).all())
    assert bool(((top + tall <= shape[0]) & (left + wide <= shape[1])).all())
    for mine, other in zip(ours, theirs, strict=True):
        error = float(other.std()) / count**0.5
        assert abs(float(mine.mean() - other.mean())) <= 5 * error + 1e-9
        assert float(mine.std()) == pytest.approx(float(other.std()), rel=0.1, abs=0.3)
