import gc
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
        (
            (PAIR, PAIR, (IMAGES, LABELS - 1)),
            "a label must be a class's number, from 0 to 999,999, or its name, got -1 for test; ",
        ),
        (
            (PAIR, PAIR, (IMAGES, LABELS / 2)),
            "a label must be a class's number, from 0 to 999,999, or its name, got 0.5 for test; ",
        ),
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
    assert result.validation["accuracy"] == 1.0
    frozen = Trainer(trial, {"width": 16, "finetune": "head"}, epochs=2, seed=0, split_seed=0)
    before = frozen.module.state_dict()["1.weight"].clone()
    frozen.run_epoch()
    assert torch.equal(frozen.module.state_dict()["1.weight"], before)


class Drawn(torch.utils.data.Dataset[Any]):
    """Three classes that differ in brightness; every image is drawn again whenever it is asked for."""

    targets = tuple(index % 3 for index in range(24))

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(1, 6, 6) + torch.from_numpy(np.random.rand(1, 6, 6)).float() * random.random()
        return noise + self.targets[index], self.targets[index]


def drawn_trial() -> ImageClassifier:
    def flat(config: dict[str, Any]) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))

    return ImageClassifier(lambda: (Drawn(), Drawn(), Drawn()), flat)


def drawn_trainer(trial: ImageClassifier, seed: int = 0) -> Trainer:
    return Trainer(trial, {"lr": 1e-2, "batch_size": 5}, epochs=3, seed=seed)


@pytest.mark.parametrize("steps", [0, 2], ids=["between epochs", "within an epoch"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_random_data_set_goes_on_as_if_it_had_never_stopped(tmp_path: Path, steps: int, workers: int) -> None:
    torch.set_num_threads(workers)  # as many processes load
    trial = drawn_trial()
    whole = drawn_trainer(trial)
    expected = [whole.run_epoch() for _ in range(3)]
    first = drawn_trainer(trial)
    first.run_epoch()
    first.train(steps)
    first.save(tmp_path)
    random.random(), np.random.rand(3), torch.rand(5)
    second = drawn_trainer(trial)
    second.load(tmp_path)
    for result in expected[1:]:
        again = second.run_epoch()
        assert (again.train_loss, again.validation.loss) == (result.train_loss, result.validation.loss)
    assert torch.equal(whole.module.state_dict()["1.weight"], second.module.state_dict()["1.weight"])


def test_a_random_data_set_draws_anew_in_every_epoch_and_trial_and_leaves_the_process_alone() -> None:
    trial, states = drawn_trial(), (random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist())  # type: ignore[index, union-attr]
    train, chosen = drawn_trainer(trial).splits.train, torch.tensor([3])
    assert torch.equal(train.images(chosen), next(train.batches([chosen], "cpu"))[0])
    images = [next(train.reseeded(seed).batches([chosen], "cpu"))[0] for seed in (1, 2, 1)]
    assert torch.equal(images[0], images[2])
    assert not torch.equal(images[0], images[1])
    losses = [drawn_trainer(trial, seed).run_epoch().train_loss for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    after = (random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist())  # type: ignore[index, union-attr]
    assert (after[0], after[2]) == (states[0], states[2])
    assert torch.equal(after[1], states[1])


def test_a_cut_that_a_data_function_draws_is_the_studys() -> None:
    def cut() -> Any:
        return torch.utils.data.random_split(Drawn(), [12, 6, 6])

    trial = ImageClassifier(cut, weights=None)  # type: ignore[arg-type]
    cuts = [load_splits(trial, seed=seed).train.dataset.dataset.indices for seed in (0, 0, 1)]  # type: ignore[attr-defined]
    assert cuts[0] == cuts[1] != cuts[2]


def test_a_trainer_on_a_data_set_is_freed_with_its_last_reference() -> None:
    gc.collect()
    gc.disable()
    try:
        running = drawn_trainer(drawn_trial())
        running.run_epoch()
        alive = [weakref.ref(running), weakref.ref(running.module), weakref.ref(running.splits.train)]
        del running
        assert [reference() for reference in alive] == [None, None, None]
    finally:
        gc.enable()
