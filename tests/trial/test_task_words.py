"""What is said of images that have several labels, or a number, before and while they are read."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unclean import noisy
from tuner import ImageClassifier, Table
from tuner.console.first_study import print_data
from tuner.first_study.folder_look import look as first_look
from tuner.train.data.looking import look
from tuner.trial.folder_headers import FolderHeaders, folder_headers
from tuner.trial.framing import Framing
from tuner.trial.sources import find_source
from tuner.trial.table import TableOfImages
from tuner.trial.tasks import TASKS


def write(folder: Path, labels: list[Any], same: dict[int, int] | None = None) -> TableOfImages:
    """A table of images with these labels; those in `same` look as others do."""
    rows = [("image", "label")]
    for number, label in enumerate(labels):
        seen = (same or {}).get(number, number)
        noisy((9, 90, 200), seen, (20 + seen % 7, 30)).save(folder / f"{number:03}.png")
        rows.append((f"{number:03}.png", label))
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    source = find_source(f"table:{folder}/labels.csv")
    assert isinstance(source, TableOfImages)
    return source


def headers(source: TableOfImages) -> FolderHeaders:
    return folder_headers(source)


def notices_of_a_search(source: TableOfImages) -> str:
    found = look(ImageClassifier(Table(source.file), weights=None), seed=0, framing=Framing(8))
    assert found is not None
    return "\n".join(found.notices)


def test_labels_are_called_labels_and_images_without_any_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path, ["red;blue"] * 40 + ["red"] * 10 + ["blue;rare"] * 2 + [""])
    found = headers(source)
    assert found.counts == {
        "blue": {"train": 42},
        "rare": {"train": 2},
        "red": {"train": 50},
        "(none)": {"train": 1},
    }
    uneven, single = found.notices[1:3]
    assert uneven == (
        "the labels are uneven: 'red' has 50 images for training, 'rare' 2; class_weights may help, and val_map and "
        "val_f1 count rare labels as much as others"
    )
    assert single == (
        "a label needs 3 images to be trained, validated and tested on, got fewer of 'rare'; add images, or remove the "
        "label"
    )
    print_data(found)
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("data: 53 image files of 3 labels; ")
    assert out[1].split() == ["label", "images"]
    assert out[5].split() == ["(none)", "1"]


def test_the_metrics_that_are_named_are_those_of_the_task() -> None:
    for task in TASKS.values():
        named = {word.strip(",;") for word in task.when_uneven.split() if word.startswith("val_")}
        assert named <= {*task.directions(())}
        assert bool(named) is task.has_classes


@pytest.mark.parametrize(
    ("labels", "differing", "alike"),
    [
        (["a;b"] * 8 + ["b"] * 8 + ["b;a", "a"], "with different labels", "with the same labels"),
        ([number + 0.5 for number in range(16)] + [0.5, 1.0], "with different numbers", "with the same number"),
        (["a"] * 8 + ["b"] * 8 + ["a", "b"], "in two classes", "in a class"),
    ],
    ids=["several", "number", "one"],
)
def test_identical_images_are_told_by_what_their_labels_are(
    tmp_path: Path, labels: list[Any], differing: str, alike: str
) -> None:
    source = write(tmp_path, labels, same={16: 0, 17: 1})
    pair = "(001.png = 017.png|017.png = 001.png)"
    told = "\n".join(headers(source).notices)
    assert f"1 image is there more than once {alike} (copies stay on one side of a cut): 000.png = 016.png" in told
    assert re.search(f"1 image is there {differing}: {pair}; delete the wrong ones", told)
    said = "\n".join(first_look(source).notices)
    assert f"1 image is there more than once {alike}: 000.png = 016.png" in said
    for notices in (said, notices_of_a_search(source)):
        assert re.search(f"1 image is there {differing}: {pair}; no model can get both right, so delete the", notices)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (
            ["a;b", "b"] * 20,
            "32 for training, 4 for validation, 4 for test: a val_subset_accuracy of 0.9 on 4 images has",
        ),
        ([number + 0.5 for number in range(40)], "32 for training, 4 for validation, 4 for test: small differences"),
        (["a", "b"] * 20, "32 for training, 4 for validation, 4 for test: a val_accuracy of 0.9 on 4 images has"),
    ],
    ids=["several", "number", "one"],
)
def test_few_images_are_told_by_a_share_that_the_task_has(tmp_path: Path, labels: list[Any], told: str) -> None:
    assert f"the images are few, {told}" in notices_of_a_search(write(tmp_path, labels))
