from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from tuner.errors import DataError
from tuner.train import Trainer, load_splits
from tuner.train.data import HeldSplit, StreamedSplit
from tuner.trial import ImageClassifier

IMAGES, LABELS = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.arange(6) % 2
PAIR = (IMAGES, LABELS)


def splits_of(function: Callable[[], Any], image_size: int | None = None) -> Any:
    return load_splits(ImageClassifier(function, weights=None), seed=0, image_size=image_size)


def test_pairs_of_tensors_are_held_and_data_sets_streamed() -> None:
    splits = splits_of(lambda: (PAIR, TensorDataset(*PAIR), Named()))
    assert isinstance(splits.train, HeldSplit)
    assert isinstance(splits.validation, HeldSplit)
    assert isinstance(splits.test, StreamedSplit)
    assert splits.classes == ("0", "1")
    assert (splits.channels, splits.key) == (1, None)
    assert splits.test.labels.tolist() == [0, 1, 0, 1]
    assert splits.train.deterministic
    assert not splits.test.deterministic


class Named(torch.utils.data.Dataset[Any]):
    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return IMAGES[index], LABELS[index]


def test_names_of_classes_come_from_the_data_set() -> None:
    assert splits_of(lambda: (Named(), PAIR, PAIR)).classes == ("cat", "dog")


def test_images_keep_their_size_unless_the_space_gives_one() -> None:
    assert splits_of(lambda: (PAIR, PAIR, PAIR)).image_size == 8
    assert splits_of(lambda: (PAIR, PAIR, PAIR), image_size=16).image_size == 16
    assert ImageClassifier(lambda: (PAIR, PAIR, PAIR), weights=None).hyperparameters({})["image_size"] is None


def test_float_images_are_normalised_by_their_own_statistics() -> None:
    images = torch.randn(50, 2, 8, 8, generator=torch.Generator().manual_seed(0)) * 3 + 7
    pair = (images, torch.arange(50) % 2)
    splits = splits_of(lambda: (pair, pair, pair))
    normalised = splits.normalisation(images)
    assert float(normalised.mean()) == pytest.approx(0, abs=1e-4)
    assert float(normalised.std()) == pytest.approx(1, abs=1e-3)
    assert float(images.mean()) == pytest.approx(7, abs=0.2)  # the caller's tensor stays as it was


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (PAIR, "a data function must return training, validation and test, got 2 things; return the three"),
        (None, "a data function must return training, validation and test, got a NoneType; return the three"),
        (
            (PAIR, PAIR, IMAGES),
            "a split must be (images, labels) or a torch Dataset with a length, got a Tensor for test",
        ),
        (
            (PAIR, (IMAGES, LABELS[:3]), PAIR),
            "images must be [N, C, H, W] and labels [N], N > 0, got (6, 1, 8, 8) and (3,)",
        ),
        (
            ((IMAGES[0], LABELS), PAIR, PAIR),
            "images must be [N, C, H, W] and labels [N], N > 0, got (1, 8, 8) and (6,)",
        ),
        ((PAIR, PAIR, (IMAGES, LABELS - 1)), "labels must be integers from 0, got torch.int64 from -1 for test"),
        ((PAIR, PAIR, (IMAGES, LABELS / 2)), "labels must be integers from 0, got torch.float32 from 0.0 for test"),
    ],
)
def test_what_is_no_data_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        splits_of(lambda: returned)
    assert str(caught.value).startswith(message)


def test_a_trial_of_functions_alone_trains(colours: ImageClassifier) -> None:
    splits = load_splits(colours, seed=0, image_size=12)
    parts = tuple((split.images(), split.labels) for split in (splits.train, splits.validation, splits.test))

    def small(config: dict[str, Any]) -> torch.nn.Module:
        width = config["width"]
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(3 * 144, width), torch.nn.ReLU(), torch.nn.Linear(width, 3)
        )

    trial = ImageClassifier(lambda: parts, small)  # type: ignore[arg-type, return-value]
    assert trial.name == "small() on <lambda>()"
    running = Trainer(trial, {"width": 16, "lr": 1e-2, "batch_size": 16}, epochs=5, seed=0, split_seed=0)
    while not running.finished:
        result = running.run_epoch()
    assert result.val_accuracy == 1.0
    frozen = Trainer(trial, {"width": 16, "finetune": "head"}, epochs=2, seed=0, split_seed=0)
    before = frozen.module.state_dict()["1.weight"].clone()
    frozen.run_epoch()
    assert torch.equal(frozen.module.state_dict()["1.weight"], before)
