"""`tuner labels`: wrong labels of a real run are found, shown, and corrected in a table."""

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tuner
from tests.html_report.browsing import Visit, browsers, needs_browser
from tests.replay.recorded import searched
from tests.train.conftest import write_colours
from tuner import Run
from tuner.cli.main import main
from tuner.label_errors import Judgement, suspects
from tuner.label_errors.confident_learning import confidences, doubted

STUDY = """
from torch import nn

from tuner import Budget, Folds, ImageClassifier, NoEarlyStopping, Random, Study, Table, loguniform


def by_mean_colour(config):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))


study = Study(
    "colours",
    trial=ImageClassifier({data}, by_mean_colour, weights=None, validation={validation}),
    space={{"lr": loguniform(0.1, 0.2), "batch_size": 8, "optimizer": "adam", "image_size": 16, "flip": 0.0}},
    search=Random(),
    scheduler=NoEarlyStopping(),
    combine="auto",
    budget=Budget(trials=2, max_epochs=12),
)
"""
ODD = 'blue & <b>"x"\n2.png'
WRONG = {"red/blue 1.png": "blue", f"=green/{ODD}": "blue", "blue/red 3.png": "red", "red/green 4.png": "=green"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Colours, of which four are in a wrong folder; a class and a file have odd names; two images are alike."""
    root = write_colours(tmp_path_factory.mktemp("a place") / "my photos", images=18, pixels=16)
    (root / "green").rename(root / "=green")
    for name, (colour, number) in zip(WRONG, (("blue", 1), ("blue", 2), ("red", 3), ("=green", 4)), strict=True):
        (root / colour / f"{number}.png").rename(root / name)
    return root


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return searched(folder.parent / "run", STUDY.format(data=f"'folder:{folder}'", validation="Folds(3)"))


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    """The run, in a folder of its own."""
    return Path(shutil.copytree(run.path, tmp_path / "a run"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_wrong_labels_are_found_shown_and_corrected_in_a_table(
    copy: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["labels", str(copy)]) == 0
    out = capsys.readouterr().out
    assert "48 of 54 images were judged by the answers of 2 trials, whose networks did not learn from them" in out
    rows = rows_of(copy / "label_errors.csv")
    found = {row["file"].removeprefix("'"): row["suggested"].removeprefix("'") for row in rows}
    judged = {name: label for name, label in WRONG.items() if name in found}
    assert len(judged) >= 3  # the others may be for the test
    assert found == judged
    assert [float(row["confidence"]) for row in rows] == sorted(
        (float(row["confidence"]) for row in rows), reverse=True
    )
    page = (copy / "label_errors.html").read_text()
    assert f"{len(rows)} labels are probably wrong" in page
    assert "<b>" not in page
    assert page.count("<img src=") == len(rows)

    assert main(["labels", str(copy), "--apply", str(tmp_path / "corrected.csv")]) == 0
    assert f"data='table:{tmp_path}/corrected.csv'" in capsys.readouterr().out
    table = {row["image"]: row["label"] for row in rows_of(tmp_path / "corrected.csv")}
    assert len(table) == 54
    assert {name: table[str(folder / name)] for name in judged} == judged
    others = {path: label for path, label in table.items() if str(Path(path).relative_to(folder)) not in judged}
    assert all(Path(path).parent.name == label for path, label in others.items())
    trial = tuner.ImageClassifier(tuner.Table(tmp_path / "corrected.csv"), weights=None)
    assert trial.image_files is not None
    assert len(trial.image_files.look().items) == 54


def test_a_user_decides_what_is_corrected(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "file;suggested\nred/green 4.png;blue\nblue/red 3.png;\n"
    (copy / "label_errors.csv").write_text(rows)
    assert main(["labels", str(copy), "--apply", str(tmp_path / "new.csv"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["changed"], told["left_out"]) == (1, 1)
    labels = {Path(row["image"]).name: row["label"] for row in rows_of(tmp_path / "new.csv")}
    assert labels["green 4.png"] == "blue"
    assert "red 3.png" not in labels

    for text, problem in (
        ("file,suggested\nblue/none.png,red\n", "a correction needs an image of the run, got 'blue/none.png' in row 2"),
        ("file,suggested\nblue/red 3.png,rde\n", "needs to be a class, got 'rde' in row 2"),
        ("file,other\nblue/red 3.png,red\n", "a table needs the column 'suggested'"),
    ):
        (copy / "label_errors.csv").write_text(text)
        assert main(["labels", str(copy), "--apply", str(tmp_path / "other.csv")]) == 2
        assert problem in capsys.readouterr().err
        assert not (tmp_path / "other.csv").exists()


def test_corrections_are_not_lost(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", str(copy), "--apply", str(tmp_path / "new.csv")]) == 2
    assert f"--apply needs label_errors.csv, got '{copy}' without it" in capsys.readouterr().err
    (copy / "label_errors.csv").write_text("mine")
    assert main(["labels", str(copy)]) == 2
    assert "may have your corrections" in capsys.readouterr().err
    assert (copy / "label_errors.csv").read_text() == "mine"
    assert main(["labels", str(copy), "--out", str(tmp_path / "other place")]) == 0
    assert (tmp_path / "other place" / "label_errors.html").is_file()
    assert main(["labels", str(copy), "--force"]) == 0
    assert (copy / "label_errors.csv").read_text() != "mine"


def test_other_data_than_the_runs_is_refused(
    run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "red" / "5.png").rename(folder / "blue" / "moved.png")
    try:
        assert main(["labels", run.path, "--out", str(tmp_path)]) == 2
    finally:
        (folder / "blue" / "moved.png").rename(folder / "red" / "5.png")
    assert "a run keeps the data that it began with" in capsys.readouterr().err


def test_without_folds_only_validation_images_are_judged_and_those_of_python_need_the_study(tmp_path: Path) -> None:
    write_colours(tmp_path / "photos", images=10)
    run = searched(tmp_path / "run", STUDY.format(data=f"'folder:{tmp_path / 'photos'}'", validation="0.2"))
    found = tuner.find_label_errors(run.path)
    assert found.judged.startswith("6 of 30 images were judged by the answers of 2 trials")
    assert found.judged.endswith("validation=Folds(5) judges all but those for the test")
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(info | {"study_file": None}))
    with pytest.raises(tuner.TunerError, match="needs the study of a run that was started from Python"):
        tuner.find_label_errors(run.path, force=True)
    study = tuner.load_study(tmp_path / "run.py")
    assert tuner.find_label_errors(run.path, study=study, force=True).suspects == found.suspects


def test_other_trials_and_tasks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import tuner\n\ndef train(config):\n    tuner.report(loss=config['x'])\n\nstudy = tuner.Study('f', trial=train, "
    text += (
        "space={'x': tuner.uniform(0, 1)}, metric='loss', mode='min', budget=tuner.Budget(trials=1, max_epochs=1))\n"
    )
    run = searched(tmp_path / "function", text)
    assert main(["labels", run.path]) == 2
    assert "labels needs an ImageClassifier, whose networks tuner knows, got the function 'train'" in (
        capsys.readouterr().err
    )
    root = write_colours(tmp_path / "photos", images=10)
    lines = [f"{path.relative_to(tmp_path)},{number % 7}.5" for number, path in enumerate(sorted(root.glob("*/*")))]
    (tmp_path / "numbers.csv").write_text("\n".join(["image,label", *lines]))
    text = STUDY.format(data=f"Table('{tmp_path / 'numbers.csv'}')", validation="0.2").replace('combine="auto",', "")
    run = searched(tmp_path / "number", text, reports=1)
    assert main(["labels", run.path]) == 2
    assert "labels needs images with one label each" in capsys.readouterr().err


def test_near_duplicates_of_two_classes_get_the_label_that_answers_prefer() -> None:
    answers = np.array([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9]])
    judged = Judgement(
        ("a", "b"), ["1", "2", "3", "4"], np.array([0, 1, 1, 1]), answers, ("0",), 4, True, (), alike=[[0, 1]]
    )
    (found,) = suspects(judged).values()
    assert (found.file, found.label, found.suggested, found.near_duplicate_of) == ("2", "b", "a", ("1",))


def test_a_label_is_doubted_that_has_a_tenth_of_what_its_class_usually_gets() -> None:
    answers = np.array([[0.9, 0.1], [0.9, 0.1], [0.05, 0.95], [0.3, 0.7], [0.2, 0.8]])
    labels = np.array([0, 0, 0, 1, 1])
    usual = (0.9 + 0.9 + 0.05) / 3
    np.testing.assert_allclose(confidences(answers, labels)[2], 1 - 0.05 / usual)
    assert doubted(answers, labels).tolist() == [0, 0, 1, 1, 1]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with browsers() as found:
        yield found


@needs_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_fits_its_screen_and_loads_nothing(browser: object, copy: Path, width: int) -> None:
    assert main(["labels", str(copy)]) == 0
    page = browser.new_page(viewport={"width": width, "height": 900})  # type: ignore[attr-defined]
    seen = Visit(page, str(copy / "label_errors.html"))
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("[...document.images].every(one => one.naturalWidth > 0)")
    assert ODD.partition("\n")[0] in page.inner_text("body")
    assert (seen.complaints, [one for one in seen.requests if not one.startswith("data:")]) == ([], [page.url])
