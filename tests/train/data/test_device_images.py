"""Images on a pretended GPU: when they fit, each once, and again for the next trial."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.conftest import small_model
from tests.train.pretend import GPU, PretendedGPU, on_gpu, pretending
from tuner import Folds
from tuner.train import CrossValidation, Trainer, load_splits, trainer_of
from tuner.train.data import device_images
from tuner.train.data.device_images import on_device
from tuner.train.data.splits import HeldSplit
from tuner.trial import ImageClassifier

IMAGE = 3 * 12 * 12  # bytes
LEARNT = 54  # of the 60 images: 48 for training, 6 for validation


@pytest.fixture
def gpu() -> Iterator[PretendedGPU]:
    with pretending() as pretended:
        yield pretended


def trainer(trial: ImageClassifier, *, epochs: int = 2, **config: Any) -> Trainer:
    config = {"batch_size": 16, "image_size": 12} | config
    return Trainer(trial, config, epochs=epochs, seed=0, split_seed=0, device="cuda")


def pools(running: Trainer) -> list[Tensor]:
    """Of the images for training and for validation."""
    feed = running.parts.feeds.images
    return [split.pool for split in (feed.train, feed.validation) if isinstance(split, HeldSplit)]


# Whether they fit


@pytest.mark.parametrize(
    ("memory", "there"),
    [
        ({"free_bytes": 4 * LEARNT * IMAGE}, True),
        ({"free_bytes": 4 * LEARNT * IMAGE - 1}, False),
        ({"total_bytes": 8 * LEARNT * IMAGE, "share": 0.5}, True),  # free_bytes are those of the whole GPU
        ({"total_bytes": 8 * LEARNT * IMAGE - 16, "share": 0.5}, False),
        ({"total_bytes": 8 * LEARNT * IMAGE, "share": 0.5, "reserved_bytes": 1}, False),
        ({"share": 0.5, "reserved_bytes": 80 * 10**9}, False),
    ],
)
def test_images_are_on_the_gpu_if_a_quarter_of_what_the_process_may_take_holds_them(
    small: ImageClassifier, memory: dict[str, Any], there: bool
) -> None:
    with pretending(**memory) as gpu:
        running = trainer(small)
        assert [on_gpu(pool) for pool in pools(running)] == [there, there]
        running.run_epoch()
        assert not gpu.mixed


def test_photos_that_a_part_of_a_gpu_has_no_room_for_stay_on_the_host() -> None:
    """An eighth of 24 GB, beside 20,000 photos of 224 pixels, which nothing reads here."""
    photos = HeldSplit(torch.empty(1, dtype=torch.uint8).expand(20_000, 3, 224, 224), torch.zeros(20_000))
    with pretending(free_bytes=23 * 10**9, total_bytes=24 * 10**9, share=0.1):
        assert on_device([photos], GPU) == [photos]


def test_images_stay_on_the_host_if_others_take_the_room_meanwhile(
    gpu: PretendedGPU, small: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device_images.Needed, "copied", full)
    running = trainer(small)
    assert not any(map(on_gpu, pools(running)))
    running.run_epoch()


def test_another_error_of_the_copy_is_raised(
    gpu: PretendedGPU, small: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Tensor:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(device_images.Needed, "copied", fail)
    with pytest.raises(RuntimeError, match="device-side assert"):
        trainer(small)


# How often they are there


def test_training_and_validation_share_one_copy_without_test_images(gpu: PretendedGPU, small: ImageClassifier) -> None:
    train, validation = pools(trainer(small))
    assert train is validation
    assert len(train) == LEARNT


def test_the_copies_are_the_images_of_the_host(
    gpu: PretendedGPU, small: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_images, "SAMPLE", 7)  # in parts, the last of which is smaller
    splits = load_splits(small, seed=0, image_size=12)
    for ours, there in zip(
        (splits.train, splits.validation), on_device([splits.train, splits.validation], GPU), strict=True
    ):
        chosen = torch.arange(len(ours)).flip(0)
        ((images, labels),) = there.batches([chosen], GPU)
        assert on_gpu(images)
        assert torch.equal(images.cpu(), ours.images(chosen))
        assert torch.equal(labels.cpu(), ours.labels[chosen])


def test_splits_with_pools_of_their_own_have_copies_of_their_own(gpu: PretendedGPU) -> None:
    first, second = (HeldSplit(torch.full((3, 1, 2, 2), value), torch.arange(3)) for value in (1, 2))
    found = on_device([first, second], GPU)
    assert [int(split.images().unique()) for split in found] == [1, 2]


def test_networks_of_a_cross_validation_share_one_copy(gpu: PretendedGPU, small: ImageClassifier) -> None:
    config = {"batch_size": 16, "image_size": 12}
    running = trainer_of(replace(small, validation=Folds(3)), config, epochs=2, device="cuda")
    assert isinstance(running, CrossValidation)
    first, *others = [pool for each in running.trainers for pool in pools(each)]
    assert len(others) == 5
    assert all(pool is first for pool in others)
    assert len(first) == LEARNT


# For the next trial


def copy_of_a_closed_trial(trial: ImageClassifier, **config: Any) -> weakref.ref[Tensor]:
    running = trainer(trial, **config)
    running.run_epoch()
    running.close()
    return weakref.ref(pools(running)[0])


def test_the_next_trial_of_the_process_has_the_same_copy(gpu: PretendedGPU, small: ImageClassifier) -> None:
    before = copy_of_a_closed_trial(small)
    after = trainer(small, lr=0.1, batch_size=8)
    assert [pool is before() for pool in pools(after)] == [True, True]


def test_a_refit_has_the_same_copy(gpu: PretendedGPU, small: ImageClassifier) -> None:
    before = copy_of_a_closed_trial(small)
    assert pools(trainer(small.refitted()))[0] is before()


@pytest.mark.parametrize("others", ["images", "cut", "none"])
def test_a_copy_is_gone_before_a_trial_with_other_images(
    gpu: PretendedGPU, small: ImageClassifier, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy_of_a_closed_trial(small)
    seen: list[Tensor | None] = []
    room = device_images.room_bytes
    monkeypatch.setattr(device_images, "room_bytes", lambda device: (seen.append(before()), room(device))[1])
    if others == "images":
        trainer(small, image_size=16)
    elif others == "cut":
        Trainer(small, {"batch_size": 16, "image_size": 12}, epochs=2, split_seed=1, device="cuda")
    else:
        streamed = load_splits(replace(small, data_memory_gb=1e-9), seed=0, image_size=12)
        on_device([streamed.train], GPU, keep=True)
    assert seen in ([None], [])
    assert before() is None


def test_features_of_a_trial_leave_its_images_to_the_next_one(
    gpu: PretendedGPU, small: ImageClassifier, tmp_path: Path
) -> None:
    torch.save(small_model({}).state_dict(), tmp_path / "saved.pt")
    pretrained = replace(small, weights=tmp_path / "saved.pt")
    before = copy_of_a_closed_trial(pretrained, finetune="head")
    assert pools(trainer(pretrained))[0] is before()


def test_other_data_at_the_same_place_is_copied_again(gpu: PretendedGPU) -> None:
    def data(value: int) -> Any:
        def split() -> tuple[Tensor, Tensor]:
            return torch.full((8, 3, 12, 12), value, dtype=torch.uint8), torch.arange(8) % 2

        return lambda: (split(), split(), split())

    for value in (1, 2, 3):
        (train, _) = pools(trainer(ImageClassifier(data(value), small_model, weights=None)))
        assert train.unique().tolist() == [value]


def test_a_trial_that_shares_the_gpu_leaves_no_images_there(small: ImageClassifier) -> None:
    with pretending(share=0.5):
        assert copy_of_a_closed_trial(small)() is None
