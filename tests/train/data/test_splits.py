from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from tuner.errors import DataError
from tuner.train import Trainer, load_splits
from tuner.train.data import HeldSplit, StreamedSplit
from tuner.train.data.images import as_tensor, resize
from tuner.train.data.splits import loader_workers
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing

POOL = torch.arange(10 * 4 * 4, dtype=torch.uint8).view(10, 1, 4, 4)
LABELS = torch.arange(10) % 3


def test_splits_share_a_pool_and_take_from_it() -> None:
    split = HeldSplit(POOL, LABELS)
    odd = split.take(np.arange(10) % 2 == 1)
    last = odd.take(np.array([False, False, True, True, True]))
    assert odd.pool.data_ptr() == last.pool.data_ptr() == POOL.data_ptr()
    assert torch.equal(last.images(), POOL[[5, 7, 9]])
    assert last.labels.tolist() == [2, 1, 0]
    assert last.rows is not None
    assert last.rows.tolist() == [5, 7, 9]


def test_batches_are_the_chosen_images_with_their_labels() -> None:
    split = HeldSplit(POOL, LABELS).take(np.arange(10) > 3)
    batches = list(split.batches([torch.tensor([5, 0]), torch.tensor([2])], "cpu"))
    assert [labels.tolist() for _, labels in batches] == [[0, 1], [0]]
    assert torch.equal(batches[0][0], POOL[[9, 4]])
    assert torch.equal(batches[1][0], POOL[[6]])


def test_images_are_resized_on_their_way() -> None:
    split = HeldSplit(POOL, LABELS, framing=Framing(8))
    ((images, _),) = split.batches([torch.arange(2)], "cpu")
    assert torch.equal(images, resize(POOL[:2], 8))


def test_a_streamed_split_gives_what_a_held_one_gives() -> None:
    held = HeldSplit(POOL, LABELS)
    streamed = StreamedSplit(TensorDataset(POOL, LABELS), LABELS)
    for chosen in ([torch.tensor([3, 1]), torch.tensor([9])], [torch.tensor([0, 1, 2])]):
        for (left, left_labels), (right, right_labels) in zip(
            held.batches(chosen, "cpu"), streamed.batches(chosen, "cpu"), strict=True
        ):
            assert torch.equal(left, right)
            assert torch.equal(left_labels, right_labels)
    assert torch.equal(held.images(), streamed.images())
    assert held.normalisation() == streamed.normalisation()


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (torch.zeros(3, 4, 5, dtype=torch.uint8), (3, 4, 5)),
        (np.zeros((4, 5), np.uint8), (1, 4, 5)),
        (np.zeros((4, 5, 3), np.uint8), (3, 4, 5)),
        (Image.new("L", (5, 4)), (1, 4, 5)),
        (Image.new("RGBA", (5, 4)), (3, 4, 5)),
        (torch.zeros(1, 4, 5, dtype=torch.float64), (1, 4, 5)),
    ],
)
def test_images_of_data_sets_come_in_many_kinds(image: object, shape: tuple[int, ...]) -> None:
    tensor = as_tensor(image)
    assert tensor.shape == shape
    assert tensor.dtype in (torch.uint8, torch.float32)


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(DataError, match=r"^an image must be a tensor \[C, H, W\], .*, got a tensor of shape \(4,\)"):
        as_tensor(torch.zeros(4))
    with pytest.raises(DataError, match="got str; convert it"):
        as_tensor("image.png")


def curve(trial: ImageClassifier) -> list[float]:
    running = Trainer(trial, {"batch_size": 16, "image_size": 12, "lr": 1e-3}, epochs=2, seed=0, split_seed=0)
    return [value for _ in range(2) for value in (running.run_epoch().train_loss, running.validate().loss)]


def test_a_folder_too_big_for_its_memory_is_streamed_and_says_so(colours: ImageClassifier) -> None:
    folder = str(colours.data)
    big = ImageClassifier(folder, "resnet18", weights=None, data_memory_gb=0.0)
    held, streamed = load_splits(colours, seed=0, image_size=12), load_splits(big, seed=0, image_size=12)
    assert isinstance(held.train, HeldSplit)
    assert isinstance(streamed.train, StreamedSplit)
    assert held.notes == ()
    assert streamed.notes == (
        "60 images of 12 pixels take 0.0 GB, more than the 0.0 GB that data may take: they are read from their files "
        "again in every epoch (data_memory_gb sets the limit)",
    )
    assert torch.equal(streamed.train.images(torch.arange(3)), streamed.train.images()[:3])
    assert [len(split) for split in (streamed.train, streamed.validation, streamed.test)] == [48, 6, 6]


def test_a_trial_learns_from_streamed_images_as_from_held_ones(colours: ImageClassifier) -> None:
    splits = load_splits(colours, seed=0, image_size=12)
    parts = [(split.images(), split.labels) for split in (splits.train, splits.validation, splits.test)]
    held = ImageClassifier(lambda: tuple(parts), weights=None)
    streamed = ImageClassifier(lambda: tuple(TaggedDataset(*part) for part in parts), weights=None)  # type: ignore[arg-type, return-value]
    assert curve(streamed) == curve(held)


class TaggedDataset(Dataset[Any]):
    """A data set as users write them: items, a length, targets."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.targets = images, labels.tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], self.targets[index]


def test_decoded_folders_are_shared_through_the_machines_cache(
    colours: ImageClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    splits = load_splits(colours, seed=0, image_size=12)
    load_splits(colours, seed=1, image_size=12)
    assert len(list((tmp_path / "cache").glob("*/images.npy"))) == 1
    load_splits(colours, seed=0, image_size=16)
    assert len(list((tmp_path / "cache").glob("*/images.npy"))) == 2
    image = next((tmp_path / "cache").glob("*/images.npy"))
    assert splits.key is not None
    assert np.load(image).dtype == np.uint8


@pytest.mark.parametrize(
    ("device", "cpus", "workers"),
    [("cpu", 1, 1), ("cpu", 2, 2), ("cpu", 16, 4), ("cuda", 1, 1), ("cuda", 6, 6), ("cuda", 16, 16), ("cuda", 64, 16)],
)
def test_images_are_loaded_by_as_many_processes_as_the_trial_has_cpus(device: str, cpus: int, workers: int) -> None:
    assert loader_workers(device, cpus) == workers


def test_only_a_gpu_gets_pinned_images_whatever_the_machine_has(
    colours: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    split = load_splits(replace(colours, data_memory_gb=1e-9), seed=0, image_size=12).train
    assert isinstance(split, StreamedSplit)
    next(split.batches([torch.arange(2)], "cpu"))
    loader = split._passes._open_loader("cpu")
    assert (loader.pin_memory, split._passes._open_loader("cpu") is loader) == (False, True)
    assert split._passes._open_loader("cuda").pin_memory
