"""Predictions for many files at once: what is meant by folders, patterns and lists, and what can't be read."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tuner import Run
from tuner.cli.main import main
from tuner.cli.predict import SOME_UNREAD
from tuner.errors import DataError
from tuner.inspection import load_model
from tuner.inspection.predicting import AT_ONCE, answers, image_files
from tuner.train.models import head_of


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three images, one of them below, a damaged one, and a file that is none."""
    folder = tmp_path / "my photos"
    (folder / "more").mkdir(parents=True)
    for name, colour in (("a.png", "red"), ("b.JPG", "blue"), ("more/ü.png", "green")):
        Image.new("RGB", (20, 14), colour).save(folder / name, "PNG")
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:40])
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_folders_patterns_and_lists_stand_for_the_images_in_them_once_each(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    everything = [photos / name for name in ("a.png", "b.JPG", "broken.png", "more/ü.png")]
    assert image_files([str(photos)]) == everything
    assert image_files(["*.png", "**/*.png", "a.png"]) == [Path("a.png"), Path("broken.png"), Path("more/ü.png")]
    Path("list").write_text("a.png\n\n more/ü.png \n")
    assert image_files(["@list", "a.png"]) == [Path("a.png"), Path("more/ü.png")]
    Image.new("RGB", (9, 9)).save("odd[1].png")
    assert image_files(["odd[1].png"]) == [Path("odd[1].png")]  # a file is itself, whatever its name
    for wrong, message in (
        ("*.gif", "a pattern needs to have images, got none for '*.gif'"),
        ("@gone", "@LIST needs a"),
    ):
        with pytest.raises(DataError) as caught:
            image_files([wrong])
        assert str(caught.value).startswith(message)


def test_answers_go_on_past_files_that_cant_be_read_and_have_every_probability(finished: Run, photos: Path) -> None:
    model = load_model(Path(finished.path) / "best")
    files = image_files([str(photos)]) * (AT_ONCE // 4 + 1)  # more than a batch
    found = list(answers(model, files))
    assert [answer.path for answer in found] == files
    unread = [answer for answer in found if answer.unread]
    assert {answer.path.name for answer in unread} == {"broken.png"}
    whole = [answer for answer in found if answer.prediction]
    expected = model.predict([answer.path for answer in whole])
    for answer, told in zip(whole, expected, strict=True):
        assert answer.prediction is not None
        assert (answer.prediction.label, sum(answer.probabilities)) == (told.label, pytest.approx(1))
        assert max(answer.probabilities) == answer.prediction.confidence == pytest.approx(told.confidence)


def test_a_csv_has_a_row_for_each_file_and_names_what_was_left_out(
    finished: Run, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = photos / "out.csv"
    assert main(["predict", finished.path, str(photos), "--csv", str(target)]) == SOME_UNREAD
    rows = list(csv.DictReader(target.open(encoding="utf-8")))
    assert [Path(row["image"]).name for row in rows] == ["a.png", "b.JPG", "broken.png", "ü.png"]
    assert [bool(row["unread"]) for row in rows] == [False, False, True, False]
    shares = torch.tensor([float(rows[0][f"p({name})"]) for name in ("blue", "green", "red")])
    assert float(shares.sum()) == pytest.approx(1, abs=1e-4)
    told = capsys.readouterr().err
    assert "left out: an image must be readable, got" in told
    assert f"3 images in {target}, 1 left out" in told
    assert main(["predict", finished.path, str(photos), "--csv", str(target)]) == 2
    assert "--csv names a new file" in capsys.readouterr().err
    assert main(["predict", finished.path, str(photos / "broken.png")]) == 2


def test_embeddings_are_what_the_last_layer_makes_the_answers_of(
    finished: Run, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = photos / "ü embeddings.npz"
    assert main(["predict", finished.path, str(photos), "--embeddings", str(target)]) == SOME_UNREAD
    told = np.load(target)
    assert [Path(name).name for name in told["images"]] == ["a.png", "b.JPG", "ü.png"]
    model = load_model(Path(finished.path) / "best")
    logits = head_of(model.module)(torch.from_numpy(told["embeddings"]))
    expected = {answer.path.name: answer.probabilities for answer in answers(model, image_files([str(photos)]))}
    for name, shares in zip(("a.png", "b.JPG", "ü.png"), logits.softmax(1).tolist(), strict=True):
        assert shares == pytest.approx(expected[name], abs=1e-5)
    assert f"3 embeddings of {told['embeddings'].shape[1]} numbers in" in capsys.readouterr().err
    assert main(["predict", finished.path, str(photos), "--embeddings", str(target)]) == 2
    assert "--embeddings names a new file" in capsys.readouterr().err
