import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_main, study_file
from tests.unclean import LEFT_OUT, READ, noisy, write_unclean
from tuner import Folds
from tuner.train.data.looking import look
from tuner.trial import ImageClassifier, folder_headers
from tuner.trial.data_source import Folder
from tuner.trial.folder_headers import FolderHeaders
from tuner.trial.framing import Framing

STUDY = """
study = Study("photos", trial=ImageClassifier("folder:my photos", weights=None), space={"lr": loguniform(1e-4, 1e-2)},
              metric="val_accuracy", budget=Budget(trials=2, max_epochs=1))
"""
BEHIND_THE_HEADER = {"dog/cut off.jpg", "dog/cut off.png"}  # only decoding finds these


def looked(root: Path, **given: Any) -> FolderHeaders:
    return folder_headers.folder_headers(Folder(root), **given)


def write(root: Path, *classes: str, images: int = 3, first: int = 0) -> Path:
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for index in range(first, first + images):
            noisy((9, 9, 9 * number), index, (20 + index, 30)).save(root / name / f"{index}.png")
    return root


def test_headers_find_what_is_wrong_without_decoding(tmp_path: Path) -> None:
    found = looked(write_unclean(tmp_path))
    assert {each.path: each.reason for each in found.left_out} == {
        path: reason for path, reason in LEFT_OUT.items() if path not in BEHIND_THE_HEADER
    }
    assert found.counts["fox"] == {"train": 1}
    assert found.sizes == ((20, 20), (20, 24), (20_000, 1))
    assert found.modes["CMYK"] == found.modes["RGBA"] == found.modes["P"] == found.modes["I;16"] == 1
    assert found.opened == 14 + 14 + 1 + len(READ) + 5
    assert found.images == sum(found.modes.values()) == found.opened - 5 + len(BEHIND_THE_HEADER)
    assert found.notices[1] == (
        "a class needs 3 images to be trained, validated and tested on, got fewer of 'fox'; add images, or remove the class"
    )


def test_identical_files_are_told_in_a_class_in_two_and_in_two_splits(tmp_path: Path) -> None:
    write(tmp_path / "train", "a", "b")
    write(tmp_path / "val", "a", "b", first=10)
    shutil.copy(tmp_path / "train/a/0.png", tmp_path / "train/a/again.png")
    shutil.copy(tmp_path / "train/a/1.png", tmp_path / "train/b/copy.png")
    shutil.copy(tmp_path / "train/b/2.png", tmp_path / "val/b/2.png")
    found = looked(tmp_path)
    assert found.counts == {"a": {"train": 4, "validation": 3}, "b": {"train": 4, "validation": 4}}
    assert found.notices[-3:] == (
        "1 image is there more than once in a class (copies stay on one side of a cut): train/a/0.png = train/a/again.png",
        "1 image is there in two classes: train/a/1.png = train/b/copy.png; delete the wrong ones",
        "1 image is there in two splits: train/b/2.png = val/b/2.png; they make the later split's metrics too good",
    )


def test_uneven_classes_are_told(tmp_path: Path) -> None:
    write(tmp_path, "a", images=30)
    write(tmp_path, "b", images=3, first=50)
    assert looked(tmp_path).notices[:1] == (
        "the classes are uneven: 'a' has 30 images for training, 'b' 3; class_weights may help, and val_f1 says more than "
        "val_accuracy",
    )


def test_what_a_cut_takes_is_told(tmp_path: Path) -> None:
    write(tmp_path / "train", "a", "b", images=30)
    write(tmp_path / "val", "a", "b", images=25, first=50)
    assert looked(tmp_path).notices == (
        "there is no test/ beside train/, so a share of its 60 training images is held out for test; add test/ to keep them",
        "the images are few, 50 for validation and about 6 for test: small differences between trials mean nothing; add "
        "images",
    )


@pytest.mark.parametrize(("missing", "told"), [("val", "validation"), ("test", "test")])
def test_a_class_that_a_split_lacks_is_named(tmp_path: Path, missing: str, told: str) -> None:
    for part, first in (("train", 0), ("val", 100), ("test", 200)):
        write(tmp_path / part, *("a", "b", "c")[: 2 if part == missing else 3], images=25, first=first)
    assert looked(tmp_path).notices == (f"{told} has no image of 'c', so its metrics don't cover it; add images",)
    found = look(ImageClassifier(f"folder:{tmp_path}", weights=None), seed=0, framing=Framing(8))
    assert found is not None
    assert found.notices == looked(tmp_path).notices


def test_few_images_are_told_and_enough_are_not(tmp_path: Path) -> None:
    write(tmp_path / "few", "a", "b", images=25)
    assert looked(tmp_path / "few").notices == (
        "the images are few, about 5 for validation and about 5 for test: small differences between trials mean nothing; "
        "add images, or hold out more with validation=",
    )
    for part, first in (("train", 0), ("val", 100), ("test", 200)):
        write(tmp_path / "enough" / part, "a", "b", images=25, first=first)
    assert looked(tmp_path / "enough").notices == ()


@pytest.mark.parametrize(
    ("validation", "few"),
    [(0.3, "about 15 for validation and about 5 for test"), (Folds(5), "about 5 for test")],
)
def test_few_images_are_those_that_the_study_holds_out(tmp_path: Path, validation: float | Folds, few: str) -> None:
    assert looked(write(tmp_path, "a", "b", images=25), validation=validation).notices == (
        f"the images are few, {few}: small differences between trials mean nothing; add images",
    )


def test_a_cross_validation_holds_no_share_out(tmp_path: Path) -> None:
    write(tmp_path / "train", "a", "b", images=30)
    write(tmp_path / "test", "a", "b", images=30, first=50)
    told = "there is no val/ beside train/, so a share of its 60 training images is held out for validation"
    assert looked(tmp_path).notices[0].startswith(told)
    assert folder_headers.folder_headers(Folder(tmp_path), validation=Folds(3)).notices == ()


def test_of_very_many_images_a_sample_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_headers, "MOST_OPENED", 5)
    found = looked(write(tmp_path, "a", "b", images=8))
    assert (found.images, found.opened) == (16, 4)


def test_check_tells_of_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_unclean(tmp_path / "my photos")
    path = study_file(tmp_path, STUDY)
    code, out, _ = run_main(capsys, "check", path)
    lines = out.splitlines()
    assert code == 0
    assert (
        "data: 39 image files of 3 classes; 20 x 20 to 20000 x 1 pixels, 20 x 24 in the middle; 34 RGB, 1 I;16, " in out
    )
    assert [line.split() for line in lines if line.startswith(("class ", "fox"))] == [["class", "images"], ["fox", "1"]]
    assert "  dog/page.jpg (it is no image, or a damaged one)" in lines
    code, out, _ = run_main(capsys, "check", path, "--json")
    data = json.loads(out)["data"]
    assert (code, data["images"], data["classes"]["fox"]) == (0, 39, {"train": 1})
    assert {"path": "dog/empty.jpg", "reason": "it is empty"} in data["left_out"]


def test_data_that_isnt_files_has_no_headers() -> None:
    assert ImageClassifier("digits").look() is None
