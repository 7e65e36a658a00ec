"""The parts of a cross-validation."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner import Folds, ImageClassifier, StudyError
from tuner.errors import DataError
from tuner.train.data import load_splits
from tuner.train.data.cutting import spread
from tuner.trial import Trial


@pytest.mark.parametrize("seed", range(10))
def test_classes_are_spread_evenly_and_what_belongs_together_stays_so(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.choice(4, 300, p=[0.6, 0.25, 0.1, 0.05])
    groups = np.where(np.arange(300) < 120, generator.integers(0, 40, 300), 1000 + np.arange(300))
    keys = np.arange(300, dtype=np.uint64)
    keys[[5, 250]] = 5  # the same image in a group and alone
    parts = spread(labels, keys, groups, 5, np.random.default_rng(seed))
    assert all(len(set(parts[groups == group].tolist())) == 1 for group in set(groups.tolist()))
    assert parts[5] == parts[250]
    counts = np.array([np.bincount(labels[parts == part], minlength=4) for part in range(5)])
    assert np.ptp(counts, axis=0).max() <= 3  # but for what groups hold together
    assert np.ptp(counts.sum(1)) <= 6
    assert (parts == spread(labels, keys, groups, 5, np.random.default_rng(seed))).all()


def test_single_images_differ_by_one_at_most() -> None:
    labels = np.repeat([0, 1, 2], [50, 23, 4])
    parts = spread(labels, np.arange(77, dtype=np.uint64), np.arange(77), 5, np.random.default_rng(0))
    counts = np.array([np.bincount(labels[parts == part], minlength=3) for part in range(5)])
    assert np.ptp(counts, axis=0).max() == 1
    assert np.ptp(counts.sum(1)) == 1


def images(root: Path, count: int, prefix: str = "{index}") -> Path:
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for index in range(count):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{prefix.format(index=index)}_{name}.png")
    return root


def test_each_image_is_validated_in_one_part_and_none_of_them_is_tested(tmp_path: Path) -> None:
    trial = ImageClassifier(f"folder:{images(tmp_path / 'x', 20)}", weights=None, validation=Folds(4))
    whole = load_splits(trial, seed=0, image_size=8)
    each = [load_splits(trial.fold(part), seed=0, image_size=8) for part in range(4)]
    rows = [set(one.validation.rows.tolist()) for one in each]  # type: ignore[attr-defined]
    everything = set(whole.train.rows.tolist())  # type: ignore[attr-defined]
    assert set.union(*rows) == everything == set(whole.validation.rows.tolist())  # type: ignore[attr-defined]
    assert sum(map(len, rows)) == len(everything) == 36
    assert everything.isdisjoint(whole.test.rows.tolist())  # type: ignore[attr-defined]
    for one, held in zip(each, rows, strict=True):
        assert set(one.train.rows.tolist()) == everything - held  # type: ignore[attr-defined]
        assert one.whole is not None
        assert one.whole.key == each[0].whole.key  # type: ignore[union-attr]
        for part in ("train", "validation"):
            split = getattr(one, part)
            assert (one.whole.split.images(one.whole.places[part]) == split.images()).all()
        assert one.normalisation == whole.normalisation
    assert len({one.key for one in each}) == 4


def test_groups_of_files_lie_in_one_part(tmp_path: Path) -> None:
    root = images(tmp_path / "x", 24, "p{index}")
    for path in [*root.glob("*/*.png")]:
        number = int(path.name.split("_")[0][1:])
        path.rename(path.with_name(f"p{number // 3}_{number}_{path.name}"))
    trial = ImageClassifier(f"folder:{root}", weights=None, validation=Folds(3), group=r"^(p\d+)_")
    patients = []
    for part in range(3):
        split = load_splits(trial.fold(part), seed=0, image_size=8).validation
        files = sorted(path for path in root.glob("*/*.png"))
        patients.append({files[row].name.split("_")[0] for row in split.rows.tolist()})  # type: ignore[attr-defined]
    assert all(patients)
    assert not patients[0] & patients[1]
    assert not patients[0] & patients[2]
    assert not patients[1] & patients[2]


def test_what_can_not_be_cross_validated_is_refused(tmp_path: Path) -> None:
    for count in (1, 0, 51, 2.5, True, "5"):
        with pytest.raises(StudyError, match=r"^Folds needs a whole number from 2 to 50, got .*; write Folds\(5\)$"):
            Folds(count)  # type: ignore[arg-type]
    few = ImageClassifier(f"folder:{images(tmp_path / 'few', 3)}", weights=None, validation=Folds(10))
    with pytest.raises(
        DataError, match=r"each part .* needs images, got Folds\(count=10\), of which \d would have none"
    ):
        load_splits(few, seed=0, image_size=8)
    root = images(tmp_path / "split" / "train", 10).parent
    images(root / "val", 2)
    with pytest.raises(DataError, match=r"^validation=Folds\(count=5\) is cut from the training images, got "):
        ImageClassifier(f"folder:{root}", weights=None, validation=Folds(5)).check_files()
    groups = images(tmp_path / "groups", 10, "p{index}")
    with pytest.raises(DataError, match=r"training must keep images of every class, got validation=Folds\(count=3\)"):
        load_splits(
            ImageClassifier(f"folder:{groups}", weights=None, validation=Folds(3), group=r"_(cat)\.png").fold(0),
            seed=0,
            image_size=8,
        )


def test_networks_of_a_cross_validation_are_not_shared_out_over_devices() -> None:
    from tuner.space import Space
    from tuner.study.resources import Resources

    trial: Trial = ImageClassifier("digits", weights=None, validation=Folds(5))
    with pytest.raises(StudyError) as caught:
        Resources(cpus=2, strategy="ddp").check_strategies(trial, Space({"lr": 0.1}))
    assert str(caught.value) == (
        "strategy='ddp' needs an ImageClassifier, got the image classifier 'resnet18 on digits', whose "
        "validation=Folds(count=5) trains several networks on one device; leave strategy out"
    )


def test_images_that_memory_does_not_hold_are_not_cross_validated(tmp_path: Path) -> None:
    root = images(tmp_path / "x", 10)
    trial = ImageClassifier(f"folder:{root}", weights=None, validation=Folds(2), data_memory_gb=0)
    with pytest.raises(DataError, match=r"needs images that memory holds, got folder:.*; raise data_memory_gb, or"):
        load_splits(trial.fold(0), seed=0, image_size=8)
