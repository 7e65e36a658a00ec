"""Folders as people have them: what can't be read is left out, told once, and known before anything trains."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.train.conftest import write_colours
from tests.unclean import LEFT_OUT, READ, jpeg, noisy, write_unclean
from tuner.errors import DataError
from tuner.train.data import load_splits
from tuner.train.data.looking import look
from tuner.trial import Folds, ImageClassifier
from tuner.trial.framing import Framing
from tuner.worker.look_process import look_apart

ALL = 14 + 14 + 1 + len(READ)


def trial(root: Path, **settings: object) -> ImageClassifier:
    return ImageClassifier(f"folder:{root}", weights=None, **settings)


@pytest.fixture
def unclean(tmp_path: Path) -> Path:
    return write_unclean(tmp_path / "my photos")


@pytest.mark.parametrize("memory", [None, 0.0], ids=["held", "from files"])
def test_every_kind_of_unclean_file_is_left_out_or_read(unclean: Path, memory: float | None) -> None:
    splits = load_splits(trial(unclean, data_memory_gb=memory), seed=0, image_size=16)
    assert splits.classes == ("cat \u732b", "dog", "fox")
    assert len(splits.train) + len(splits.validation) + len(splits.test) == ALL
    for split in (splits.train, splits.validation, splits.test):
        assert split.images().shape == (len(split), 3, 16, 16)


def test_what_was_left_out_is_listed_with_its_reason(unclean: Path) -> None:
    found = look(trial(unclean), seed=0, framing=Framing(16))
    assert found is not None
    assert {each.path: each.reason for each in found.left_out} == LEFT_OUT
    assert list(found.counts["fox"].values()) == [1, 0, 0]
    record = found.record()
    assert record["images"] == {part: sum(each[part] for each in found.counts.values()) for part in record["images"]}
    assert sum(record["images"].values()) == ALL
    assert {each["path"]: each["reason"] for each in record["left_out"]} == {
        path: f"it {reason}" for path, reason in LEFT_OUT.items()
    }
    assert found.notices[0] == (
        f"9 of {ALL + 9} files and folders were left out: bird/ (it is a class without images), dog/bomb.png (it has "
        "400,000,000 pixels, more than the 120,000,000 that are read (TUNER_MAX_IMAGE_PIXELS sets the limit)), "
        "dog/cut off.jpg (it is cut off), and 6 more; data.json in the run's folder lists them all"
    )
    assert found.notices[1] == (
        "a class needs 3 images to be trained, validated and tested on, got 1 of 'fox', which is for training: no metric "
        "covers it; add images, or remove the class"
    )


def test_a_process_of_its_own_finds_the_same(unclean: Path) -> None:
    here = look(trial(unclean), seed=0, framing=Framing(16))
    assert here is not None
    apart = look_apart({"trial": {"data": f"folder:{unclean}"}, "seed": 0, "framing": {"pixels": 16}})
    assert apart is not None
    assert (apart.record, apart.notices) == (here.record(), here.notices)
    shutil.rmtree(unclean / "dog")
    shutil.rmtree(unclean / "fox")
    with pytest.raises(DataError, match=r"^a folder of images needs at least 2 classes"):
        look_apart({"trial": {"data": f"folder:{unclean}"}, "seed": 0, "framing": {"pixels": 16}})


def test_the_process_that_looks_ends_with_who_asked(tmp_path: Path) -> None:
    task = {"trial": {"data": f"folder:{write_colours(tmp_path, images=100)}"}, "seed": 0, "framing": {"pixels": 64}}
    with subprocess.Popen(
        [sys.executable, "-m", "tuner.train.data.looking"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        told, _ = process.communicate(json.dumps(task).encode() + b"\n", timeout=120)  # and closes its input
    assert (process.returncode, told) == (1, b"")


def test_a_limit_that_is_raised_and_a_file_that_is_repaired_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_colours(tmp_path)
    noisy((1, 2, 3), 0, (30, 30)).save(root / "red" / "large.png")
    monkeypatch.setenv("TUNER_MAX_IMAGE_PIXELS", "800")
    (root / "red" / "0.png").write_bytes(b"")
    before = look(trial(root), seed=0, framing=Framing(8))
    assert before is not None
    assert [each.path for each in before.left_out] == ["red/0.png", "red/large.png"]
    monkeypatch.delenv("TUNER_MAX_IMAGE_PIXELS")
    raised = look(trial(root), seed=0, framing=Framing(8))
    assert raised is not None
    assert [each.path for each in raised.left_out] == ["red/0.png"]
    noisy((1, 2, 3), 1).save(root / "red" / "0.png")
    after = look(trial(root), seed=0, framing=Framing(8))
    assert after is not None
    assert after.left_out == ()


def test_a_disk_that_fails_leaves_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else images would be missing for as long as the cache has the entry."""
    root = write_colours(tmp_path)
    opened = Image.open

    def fail(path: Path, **options: object) -> Image.Image:
        if path.name == "3.png":
            raise OSError(5, "Input/output error")
        return opened(path, **options)

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(DataError, match=r"got .*/3\.png: Input/output error; check the path and the disk$"):
        look(trial(root), seed=0, framing=Framing(8))
    monkeypatch.undo()
    found = look(trial(root), seed=0, framing=Framing(8))
    assert found is not None
    assert found.left_out == ()


def test_a_class_of_which_most_cant_be_read_is_refused(tmp_path: Path) -> None:
    root = write_colours(tmp_path, images=6)
    for index in range(3):
        (root / "red" / f"{index}.png").write_bytes(b"no image")
    assert len(load_splits(trial(root), seed=0, image_size=8).train) > 0
    (root / "red" / "3.png").write_bytes(b"no image")
    os.utime(root / "red", ns=(1, 1))
    with pytest.raises(DataError) as caught:
        load_splits(trial(root), seed=0, image_size=8)
    assert str(caught.value) == (
        f"at least half of a class's images must be readable, got 4 of 6 of 'red' for train in {root} that aren't: red/0.png "
        "(it is no image, or a damaged one), red/1.png (it is no image, or a damaged one), red/2.png (it is no image, or a "
        "damaged one), and 1 more; repair or remove them"
    )


def test_images_in_two_classes_and_on_two_sides_are_named(tmp_path: Path) -> None:
    train = write_colours(tmp_path / "photos" / "train", images=30)
    test = write_colours(tmp_path / "photos" / "test", images=2)
    for index in range(2):
        noisy((9, 9, 9), index).save(test / "red" / f"{index}.png")
        noisy((9, 9, 9), index + 5).save(test / "blue" / f"{index}.png")
        shutil.copy(train / "green" / f"{index}.png", test / "green" / f"{index}.png")
    for name in ("red/4 again.png", "green/copy.png"):
        shutil.copy(train / "red" / "4.png", train / name)
    found = look(trial(tmp_path / "photos"), seed=0, framing=Framing(8))
    assert found is not None
    assert found.notices[:3] == (
        "there is no val/ beside train/, so 9 of its 92 training images are held out for validation; add val/ to keep them",
        "1 image is there in two classes: train/green/copy.png = train/red/4 again.png; no model can get both right, so delete the "
        "wrong one",
        "2 images lie in train/ and in test/: train/green/0.png = test/green/0.png, train/green/1.png = test/green/1.png; "
        "they make the metrics of test too good",
    )


def test_a_test_split_that_is_cut_from_given_training_images_is_told(tmp_path: Path) -> None:
    write_colours(tmp_path / "photos" / "train", images=100)
    for folder in (tmp_path / "photos" / "val" / name for name in ("blue", "green", "red")):
        folder.mkdir(parents=True)
        for index in range(20):
            noisy((len(folder.name), 9, 9), index).save(folder / f"{index}.png")
    found = look(trial(tmp_path / "photos"), seed=0, framing=Framing(8))
    assert found is not None
    assert found.notices[0] == (
        "there is no test/ beside train/, so 30 of its 300 training images are held out for test; add test/ to keep them"
    )
    assert found.record()["images"] == {"train": 270, "validation": 60, "test": 30}


def test_few_images_are_told_with_what_they_can_tell(tmp_path: Path) -> None:
    root = write_colours(tmp_path, images=17)
    found = look(trial(root), seed=0, framing=Framing(8))
    assert found is not None
    assert found.notices == (
        "the images are few, 39 for training, 6 for validation, 6 for test: a val_accuracy of 0.9 on 6 images has a standard "
        "error of 0.12, so small differences between trials mean nothing; add images, or validate on more of them, with "
        "validation=0.2 or validation=Folds(5)",
    )
    folded = look(trial(root, validation=Folds(5)), seed=0, framing=Framing(8))
    assert folded is not None
    assert folded.notices[0].endswith("small differences between trials mean nothing; add images")
    assert look(trial(write_colours(tmp_path / "more", images=200)), seed=0, framing=Framing(8)).notices == ()


def test_a_class_that_no_split_has_images_of_is_named(tmp_path: Path) -> None:
    root = write_colours(tmp_path, images=200)
    (root / "two").mkdir()
    for index in range(2):
        (root / "two" / f"{index}.jpg").write_bytes(jpeg(noisy((9, 9, 9), index)))
    found = look(trial(root), seed=0, framing=Framing(8))
    assert found is not None
    assert found.notices == ("test has no image of 'two', so its metrics don't cover it; add images",)


def test_data_that_isnt_files_has_nothing_to_look_at() -> None:
    assert look(ImageClassifier("digits"), seed=0, framing=Framing(8)) is None
    assert replace(ImageClassifier("digits"), data=lambda: None).image_files is None


def test_names_in_no_encoding_are_told_so_that_they_can_be_written(tmp_path: Path) -> None:
    root = write_colours(tmp_path, images=200)
    (root / "red" / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"")
    found = look_apart({"trial": {"data": f"folder:{root}", "data_dir": tmp_path}, "seed": 0, "framing": {"pixels": 8}})
    assert found is not None
    assert found.notices == ("1 of 601 files was left out: red/caf\\udce9.jpg (it is empty)",)
    json.dumps(found.record).encode()
