import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tuner.errors import DataError
from tuner.train.data import Normalisation, Split, load_splits
from tuner.train.data.images import pixel_key, resize
from tuner.trial import ImageClassifier


def folder_of(trial: ImageClassifier) -> Path:
    return Path(str(trial.data).removeprefix("folder:"))


DIGITS = ImageClassifier("digits", weights=None)


def keys(split: Split) -> set[int]:
    return {pixel_key(image) for image in split.images()}


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    splits = load_splits(DIGITS, seed=0, image_size=8)
    ours = torch.cat([splits.train.images(), splits.validation.images(), splits.test.images()]).flatten(1)
    theirs = torch.from_numpy(np.floor(load_digits().data * 255 / 16 + 0.5).astype(np.uint8))
    assert sorted(ours.tolist()) == sorted(theirs.tolist())
    assert splits.classes == tuple("0123456789")


def test_digits_are_cut_80_10_10_with_identical_images_on_one_side() -> None:
    splits = load_splits(DIGITS, seed=0, image_size=8)
    assert [len(split) for split in (splits.train, splits.validation, splits.test)] == [1439, 179, 179]
    for split in (splits.validation, splits.test):
        assert split.labels.bincount().tolist() == [18, 18, 18, 18, 18, 18, 18, 18, 17, 18]
    assert not keys(splits.train) & keys(splits.validation)
    assert not keys(splits.train) & keys(splits.test)
    assert not keys(splits.validation) & keys(splits.test)


def test_the_seed_decides_the_cut_and_the_image_size_does_not() -> None:
    first, again = load_splits(DIGITS, seed=0, image_size=8), load_splits(DIGITS, seed=0, image_size=16)
    other = load_splits(DIGITS, seed=1, image_size=8)
    assert torch.equal(first.train.labels, again.train.labels)
    assert torch.equal(resize(first.validation.images(), 16), again.validation.images())
    assert not torch.equal(first.validation.images(), other.validation.images())


def test_data_is_kept_for_the_next_trial() -> None:
    assert load_splits(DIGITS, seed=0, image_size=8) is load_splits(DIGITS, seed=0, image_size=8)


def test_the_default_image_size_is_the_trials(colours: ImageClassifier) -> None:
    assert load_splits(DIGITS, seed=0).image_size == 24
    assert load_splits(colours, seed=0).image_size == 64


def test_normalised_training_images_have_mean_0_and_deviation_1() -> None:
    splits = load_splits(DIGITS, seed=0, image_size=8)
    normalised = splits.normalisation(splits.train.images())
    assert normalised.dtype == torch.float32
    assert float(normalised.mean()) == pytest.approx(0, abs=1e-5)
    assert float(normalised.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_the_statistics_are_per_channel_and_a_constant_one_does_no_harm() -> None:
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    images[0, 0] = 255
    images[:, 1] = 51
    assert Normalisation.of(images) == Normalisation((0.5, 0.2, 0.0), (0.5, 1 / 255, 1 / 255))
    assert torch.equal(Normalisation.of(images)(images)[:, 0, 0, 0], torch.tensor([1.0, -1.0]))


def test_a_folder_is_cut_by_class(colours: ImageClassifier) -> None:
    splits = load_splits(colours, seed=0, image_size=16)
    assert splits.classes == ("blue", "green", "red")
    assert splits.channels == 3
    assert [split.labels.bincount().tolist() for split in (splits.train, splits.validation, splits.test)] == [
        [16, 16, 16],
        [2, 2, 2],
        [2, 2, 2],
    ]
    assert splits.test.images().float().mean((2, 3)).argmax(1).tolist() == [2, 2, 1, 1, 0, 0]


def test_a_folder_keeps_the_splits_it_has(colours: ImageClassifier, tmp_path: Path) -> None:
    root = folder_of(colours)
    shutil.copytree(root, tmp_path / "split" / "train")
    shutil.copytree(root, tmp_path / "split" / "test")
    splits = load_splits(ImageClassifier(f"folder:{tmp_path / 'split'}", weights=None), seed=0, image_size=12)
    assert [len(split) for split in (splits.train, splits.validation, splits.test)] == [54, 6, 60]


def test_images_of_different_sizes_and_modes_go_together(tmp_path: Path) -> None:
    for name, grey in (("dark", 10), ("light", 240)):
        (tmp_path / name).mkdir()
        for index, mode in enumerate(("L", "RGB", "RGBA", "P", "CMYK", "1")):
            suffix = "tif" if mode == "CMYK" else "png"
            Image.new("RGB", (5 + index, 9 - index), (grey, grey, index)).convert(mode).save(
                tmp_path / name / f"{index}.{suffix}"
            )
    splits = load_splits(ImageClassifier(f"folder:{tmp_path}", weights=None), seed=0, image_size=8)
    assert splits.train.images().shape == (8, 3, 8, 8)


def test_a_folder_that_changed_is_read_again(colours: ImageClassifier) -> None:
    before = load_splits(colours, seed=0, image_size=12)
    path = folder_of(colours) / "red"
    (path / "3.png").unlink()
    os.utime(path, ns=(1, 1))
    assert len(load_splits(colours, seed=0, image_size=12).train) == len(before.train) - 1


def test_too_few_different_images_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(5):
            Image.new("L", (8, 8), 100 if name == "a" else 200).save(tmp_path / name / f"{index}.png")
    with pytest.raises(DataError) as caught:
        load_splits(ImageClassifier(f"folder:{tmp_path}", weights=None), seed=0)
    assert str(caught.value) == (
        f"data must leave images for training, validation and test, got none for test of folder:{tmp_path}; "
        "add images that differ, at least 3 a class"
    )


def test_fashion_mnist_is_cut_54000_6000_10000(real_data: Callable[[str], Path]) -> None:
    splits = load_splits(ImageClassifier("fashion-mnist", weights=None, data_dir=real_data("FashionMNIST")), seed=0)
    assert splits.train.images().shape == (54_000, 1, 28, 28)
    assert splits.train.labels.bincount().tolist() == [5400] * 10
    assert splits.validation.labels.bincount().tolist() == [600] * 10
    assert splits.test.labels.bincount().tolist() == [1000] * 10
    assert not keys(splits.train) & keys(splits.validation)
    assert splits.normalisation.mean == pytest.approx((0.286,), abs=1e-3)


def test_cifar10_is_read_from_folders(tmp_path: Path, real_data: Callable[[str], Path]) -> None:
    source = real_data("cifar10") / "cifar10"
    for split, count in (("train", 20), ("test", 5)):
        for folder in sorted((source / split).iterdir()):
            target = tmp_path / "cifar10" / split / folder.name
            target.mkdir(parents=True)
            for path in sorted(folder.iterdir())[:count]:
                shutil.copy(path, target)
    splits = load_splits(ImageClassifier("cifar10", weights=None, data_dir=tmp_path), seed=0)
    assert splits.train.images().shape == (180, 3, 32, 32)
    assert (len(splits.validation), len(splits.test)) == (20, 50)
    assert splits.classes[:3] == ("airplane", "automobile", "bird")
