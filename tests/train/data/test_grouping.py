from pathlib import Path

import numpy as np
import pytest

from tests.unclean import noisy
from tuner.errors import DataError
from tuner.train.data import load_splits
from tuner.train.data.cutting import Cut, cut
from tuner.train.data.holding_out import hold_out_groups, joined, name_groups
from tuner.train.data.loading import load_pool
from tuner.train.data.pool import PARTS
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing


def files(*names: str) -> list[Path]:
    return [Path("cat") / name for name in names]


def test_the_group_is_the_first_group_of_the_pattern_or_its_match() -> None:
    names = files("p1_a.jpg", "p2_a.jpg", "p1_b.jpg", "other.jpg", "another.jpg")
    for pattern in (r"^(p\d)_", r"p\d", r"^(p\d)_|nowhere"):
        found = name_groups(names, pattern)
        assert found[0] == found[2]
        assert len(set(found.tolist())) == 4


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"patient(\d+)", r"got 'patient\(\\\\d\+\)', which fits none, such as 'p1_a\.jpg'; correct it"),
        (r"p", r"got 'p', for which all are one group, 'p'; correct it"),
    ],
)
def test_a_pattern_that_tells_nothing_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        name_groups(files("p1_a.jpg", "p2_a.jpg"), pattern)


def test_identical_images_join_groups() -> None:
    groups = np.array([5, 5, 7, 7, 9, 11])
    keys = np.array([1, 2, 2, 3, 4, 5], dtype=np.uint64)
    assert joined(groups, keys).tolist() == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_held_out_whole_and_close_to_the_quota(seed: int) -> None:
    generator = np.random.default_rng(seed)
    groups = np.sort(generator.integers(0, 60, 400))
    labels = generator.integers(0, 3, 400)
    held = hold_out_groups(labels, np.arange(400, dtype=np.uint64), groups, dict.fromkeys(range(3), 13), generator)
    assert not set(groups[held].tolist()) & set(groups[~held].tolist())
    assert abs(held.sum() - 39) <= 7
    assert np.abs(np.bincount(labels[held], minlength=3) - 13).max() <= 7


def test_of_groups_larger_than_the_quota_one_is_held_out_and_a_class_keeps_some() -> None:
    groups, labels = np.repeat([0, 1, 2, 3], 10), np.repeat([0, 1], 20)
    held = hold_out_groups(labels, np.arange(40, dtype=np.uint64), groups, {0: 2, 1: 2}, np.random.default_rng(0))
    assert np.bincount(labels[held]).tolist() == [10, 10]
    only = hold_out_groups(
        labels,
        np.arange(40, dtype=np.uint64),
        np.repeat([0, 2, 3], [20, 10, 10]),
        {0: 2, 1: 2},
        np.random.default_rng(0),
    )
    assert np.bincount(labels[only], minlength=2).tolist() == [0, 10]


def test_the_only_group_of_a_class_stays_where_it_would_fit() -> None:
    groups, labels = np.array([0, 0, 1, 2, 3, 4]), np.array([0, 0, 1, 1, 1, 1])
    for seed in range(10):
        held = hold_out_groups(labels, np.arange(6, dtype=np.uint64), groups, {0: 2, 1: 1}, np.random.default_rng(seed))
        assert labels[held].tolist() == [1]


def test_a_group_with_the_same_image_under_two_labels_stays() -> None:
    labels, groups = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 1, 2, 3, 4])
    keys = np.array([7, 7, 1, 2, 3, 4], dtype=np.uint64)
    for seed in range(60):
        held = hold_out_groups(labels, keys, groups, {0: 1, 1: 1}, np.random.default_rng(seed))
        assert held.sum() == 2
        assert not held[:2].any()


def bursts(root: Path, *, first: int = 0, count: int = 10) -> Path:
    """Two classes, each of ten bursts of four nearly identical pictures."""
    for label, colour in enumerate([(200, 40, 40), (40, 40, 200)]):
        (root / f"class {label}").mkdir(parents=True)
        for burst in range(first, first + count):
            for shot in range(4):
                picture = noisy(colour, 1000 * label + burst)
                picture.putpixel((shot, 0), (0, 0, 0))
                picture.save(root / f"class {label}" / f"burst{burst}_{shot}.png")
    return root


def sides(trial: ImageClassifier, seed: int) -> dict[str, set[str]]:
    """Class and burst of the images of each split."""
    pool = load_pool(trial, Framing(8))
    rows = cut(pool, Cut(seed, trial.validation, trial.group), trial.source.name)
    return {
        part: {f"{pool.files[row].parent.name} {pool.files[row].name.split('_')[0]}" for row in rows[part].tolist()}
        for part in PARTS
    }


def test_bursts_of_a_folder_stay_on_one_side_and_without_a_pattern_they_do_not(tmp_path: Path) -> None:
    trial = ImageClassifier(f"folder:{bursts(tmp_path)}", weights=None, group=r"^(burst\d+)_")
    for seed in range(5):
        found = sides(trial, seed)
        assert not found["train"] & (found["validation"] | found["test"])
        assert not found["validation"] & found["test"]
        assert len(found["validation"]) == len(found["test"]) == 2
    loose = sides(ImageClassifier(trial.data, weights=None), 0)
    assert loose["train"] & loose["validation"]


def test_a_share_is_held_out_of_every_class(tmp_path: Path) -> None:
    data = f"folder:{bursts(tmp_path)}"
    splits = load_splits(ImageClassifier(data, weights=None, validation=0.25), seed=0, image_size=8)
    assert splits.validation.labels.bincount().tolist() == [10, 10]
    assert splits.test.labels.bincount().tolist() == [4, 4]
    assert splits.train.labels.bincount().tolist() == [26, 26]
    assert splits.key != load_splits(ImageClassifier(data, weights=None), seed=0, image_size=8).key


def test_the_folders_own_split_is_used_as_it_is(tmp_path: Path) -> None:
    bursts(tmp_path / "train")
    bursts(tmp_path / "val", first=10, count=2)
    bursts(tmp_path / "test", first=12, count=3)
    trial = ImageClassifier(f"folder:{tmp_path}", weights=None, validation="folder")
    splits = load_splits(trial, seed=0, image_size=8)
    assert [len(split) for split in (splits.train, splits.validation, splits.test)] == [80, 16, 24]
    with pytest.raises(DataError) as caught:
        load_splits(ImageClassifier(trial.data, weights=None, validation=0.2), seed=0, image_size=8)
    assert str(caught.value) == (
        f"validation=0.2 is cut from the training images, got {trial.data}, which has a validation split of its own; "
        "write validation='folder', or move val/ away"
    )


def test_a_split_that_isnt_there_cant_be_asked_for(tmp_path: Path) -> None:
    trial = ImageClassifier(f"folder:{bursts(tmp_path)}", weights=None, validation="folder")
    with pytest.raises(DataError) as caught:
        trial.check_files()
    assert str(caught.value) == (
        f"validation='folder' needs a folder val/ beside train/, got {trial.data} without one; add it, or give a share, "
        "such as validation=0.2"
    )


def test_a_share_that_leaves_a_class_no_training_image_is_refused(tmp_path: Path) -> None:
    trial = ImageClassifier(f"folder:{bursts(tmp_path, count=2)}", weights=None, validation=0.95)
    with pytest.raises(DataError) as caught:
        load_splits(trial, seed=0, image_size=8)
    assert str(caught.value) == (
        f"training must keep images of every class, got validation=0.95, which leaves none of 'class 0' in {trial.data}; "
        "lower it, or add images"
    )
