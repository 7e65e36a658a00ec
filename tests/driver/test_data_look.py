import json
from pathlib import Path

import pytest

from tests.train.conftest import write_colours
from tuner import Budget, ImageClassifier, Study, choice, uniform
from tuner.driver.data_look import look, news_of, write_data
from tuner.errors import DataError
from tuner.storage.folder import LocalFolder


def study(trial: object) -> Study:
    return Study(
        "s", trial=trial, space={"image_size": choice([32, 64])}, metric="val_accuracy", budget=Budget(trials=1)
    )


def train(config: dict[str, float]) -> None:
    raise AssertionError("nothing is trained for a look")


def test_a_studys_images_are_looked_at_and_written_down(tmp_path: Path) -> None:
    root = write_colours(tmp_path / "my photos", images=60)
    (root / "red" / "0.png").write_bytes(b"")
    found = look(study(ImageClassifier(f"folder:{root}", weights=None)))
    assert found is not None
    assert found.notices[0] == "1 of 180 files was left out: red/0.png (it is empty)"
    write_data(LocalFolder(tmp_path), found)
    assert json.loads((tmp_path / "data.json").read_text())["left_out"] == [
        {"path": "red/0.png", "reason": "it is empty"}
    ]
    assert news_of(found, ["something else"]) == list(found.notices)
    assert news_of(found, found.notices[:1]) == list(found.notices[1:])


def test_a_folder_that_no_trial_could_use_is_refused(tmp_path: Path) -> None:
    root = write_colours(tmp_path, images=2)
    for path in (root / "red").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"^at least half of a class's images must be readable, got 2 of 2 of 'red' "):
        look(study(ImageClassifier(f"folder:{root}", weights=None)))


def test_of_other_data_nothing_is_said(tmp_path: Path) -> None:
    assert look(study(ImageClassifier("digits", weights=None))) is None
    assert (
        look(Study("f", trial=train, space={"x": uniform(0, 1)}, metric="m", mode="min", budget=Budget(trials=1)))
        is None
    )
    assert news_of(None, []) == []
    write_data(LocalFolder(tmp_path), None)
    assert list(tmp_path.iterdir()) == []
