import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.results.simulated import simulated
from tuner import Run, load_run
from tuner.plots import classes, mistakes

COUNTS = [[5, 0, 1], [3, 4, 0], [0, 0, 9]]
MISTAKE = {"index": 7, "label": "dog", "predicted": "cat", "confidence": 0.99, "image": "iVBORw0KGgo="}
BIN = {"images": 10, "confidence": 0.9, "accuracy": 0.7}
CALIBRATION = {
    "temperature": 2.5,
    "accuracy": 0.7,
    "confidence": 0.9,
    "ece": 0.2,
    "scaled_ece": 0.03,
    "bins": [BIN],
    "scaled_bins": [{**BIN, "confidence": 0.73}],
}


def scored(folder: Path, counts: list[list[int]] | None = None, **files: Any) -> Run:
    """A run whose winner has a confusion matrix, and these files of `best/`."""
    simulated(folder)
    (folder / "best").mkdir()
    matrix = {"classes": ["cat", "dog", "1"], "counts": counts or COUNTS}
    for name, content in {"confusion_matrix": matrix, **files}.items():
        (folder / "best" / f"{name}.json").write_text(json.dumps(content))
    return load_run(folder)


def test_the_confusion_matrix_names_the_most_frequent_mistake(tmp_path: Path) -> None:
    found = mistakes.confusion(scored(tmp_path))
    assert found is not None
    assert found.figure.layout.title.text == "Most often, dog is taken for cat: 3 of the test images"
    assert found.table.to_numpy().tolist() == [["dog", "cat", 3], ["cat", "1", 1]]
    assert [list(row) for row in found.figure.data[0].z] == COUNTS


@pytest.mark.parametrize(
    ("counts", "title"),
    [
        (
            [[5, 0, 1], [1, 4, 0], [0, 0, 9]],
            "cat for 1 and dog for cat are taken equally often: 1 of the test images each",
        ),
        (
            [[5, 1, 1], [1, 4, 1], [0, 0, 9]],
            "No confusion stands out: 4 pairs of classes are confused equally often, 1 of the test images each",
        ),
        ([[5, 0, 0], [0, 4, 0], [0, 0, 9]], "No test image was taken for another class"),
    ],
)
def test_confusions_that_are_equally_frequent_are_called_so(
    tmp_path: Path, counts: list[list[int]], title: str
) -> None:
    found = mistakes.confusion(scored(tmp_path, counts))
    assert found is not None
    assert found.figure.layout.title.text.replace("<br>", " ") == title


def test_each_class_has_its_scores_with_errors_the_worst_first(tmp_path: Path) -> None:
    found = classes.classes(scored(tmp_path))
    assert found is not None
    table = found.table.set_index("class")
    assert list(table.index) == ["cat", "dog", "1"]
    assert table["support"].to_dict() == {"cat": 6, "dog": 7, "1": 9}
    assert table.loc["cat", "precision"] == 5 / 8
    assert table.loc["cat", "recall"] == 5 / 6
    assert table.loc["cat", "F1"] == pytest.approx(2 * (5 / 8) * (5 / 6) / (5 / 8 + 5 / 6))
    assert (table[["precision ±", "recall ±", "F1 ±"]] > 0).all(axis=None)
    assert found.figure.layout.title.text.startswith("cat is the class with the lowest F1: 0.71 ± 0.1")


def test_the_error_of_f1_is_that_of_many_draws() -> None:
    import numpy as np

    generator = np.random.default_rng(0)
    truth = np.array([[80, 20], [30, 170]])
    draws = generator.multinomial(300, (truth / 300).ravel(), size=4000).reshape(-1, 2, 2)
    drawn = 2 * draws[:, 0, 0] / (2 * draws[:, 0, 0] + draws[:, 0, 1] + draws[:, 1, 0])
    told = classes.class_table(["a", "b"], truth.tolist()).set_index("class").loc["a", "F1 ±"]
    assert told == pytest.approx(drawn.std(), rel=0.1)


def test_a_class_that_no_image_was_taken_for_has_no_precision(tmp_path: Path) -> None:
    table = classes.class_table(["a", "b"], [[0, 4], [0, 6]]).set_index("class")
    assert math.isnan(table.loc["a", "precision"])
    assert table.loc["a", "F1"] == 0
    run = scored(tmp_path, [[0, 1, 0], [0, 4, 0], [0, 0, 9]])
    json.loads(run.plot.classes().to_json())


def test_confident_mistakes_are_shown_as_images_with_where_the_winner_looked(tmp_path: Path) -> None:
    run = scored(tmp_path, mistakes=[MISTAKE] * 30, least_sure=[{**MISTAKE, "saliency": "iVBORw0KGgo="}] * 2)
    found = mistakes.mistakes(run)
    assert found is not None
    assert len(found.figure.layout.images) == len(found.table) == 16
    assert found.figure.layout.annotations[0].text == "cat (99%)<br>is dog"
    unsure = mistakes.least_sure(run)
    assert unsure is not None
    assert len(unsure.figure.layout.images) == 4
    assert len(unsure.table) == 2


def test_a_damaged_file_of_mistakes_is_left_out(tmp_path: Path) -> None:
    run = scored(tmp_path)
    (tmp_path / "best" / "mistakes.json").write_text("[{")
    assert mistakes.mistakes(load_run(tmp_path)) is None
    assert run.plot.mistakes().layout.title.text == "The winner has no mistakes to show"


def test_the_reliability_diagram_says_how_sure_and_what_a_temperature_mends(tmp_path: Path) -> None:
    found = classes.calibration(scored(tmp_path, calibration=CALIBRATION))
    assert found is not None
    assert found.figure.layout.title.text.replace("<br>", " ") == (
        "The winner is surer than it is right: calibration error 20.0%, 3.0% at temperature 2.5"
    )
    assert found.table["confidence"].tolist() == [0.9, 0.73]
    line, trained, scaled = found.figure.data
    assert list(line.x) == list(line.y) == [0, 1]
    assert (list(trained.x), list(trained.y)) == ([0.9], [0.7])
    assert (list(scaled.x), list(scaled.y)) == ([0.73], [0.7])


@pytest.mark.parametrize(
    "change",
    [
        {"bins": [{**BIN, "images": 0}]},
        {"bins": [{**BIN, "accuracy": 1.5}]},
        {"scaled_bins": None},
        {"temperature": "hot"},
    ],
)
def test_a_calibration_that_none_can_be_is_left_out_and_said(tmp_path: Path, change: dict[str, Any]) -> None:
    run = scored(tmp_path, calibration=CALIBRATION | change)
    assert classes.calibration(run) is None
    assert run.damages == ["best/calibration.json does not describe a winner; it is left out"]


def test_runs_of_older_versions_have_no_such_files_and_say_so(tmp_path: Path) -> None:
    run = scored(tmp_path)
    assert classes.calibration(run) is mistakes.least_sure(run) is None
    for name in ("calibration", "least_sure"):
        assert getattr(run.plot, name)().layout.title.text.startswith("The run has no such score of its winner")
    assert run.damages == []
