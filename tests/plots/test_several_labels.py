"""Plots of a winner of several labels: exact figures."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.results.simulated import simulated
from tuner import Run, load_run
from tuner.plots.several_labels import label_scores, mistaken_together

LABELS: dict[str, Any] = {
    "labels": ["red", "blue", "a<b"],
    "thresholds": [0.5, 0.25, 0.75],
    "hits": [5, 4, 9],
    "answered": [8, 4, 10],
    "having": [6, 7, 9],
    "average_precision": [0.75, 0.875, None],
    "wrong_together": [[4, 2, 0], [2, 3, 1], [0, 1, 1]],
}


def scored(folder: Path, **changes: Any) -> Run:
    run = simulated(folder)
    run.folder.write("best/labels.json", json.dumps(LABELS | changes).encode())
    return load_run(folder)


def test_each_label_has_its_scores_at_its_threshold_the_worst_first(tmp_path: Path) -> None:
    found = label_scores(scored(tmp_path))
    assert found is not None
    table = found.table.set_index("label")
    assert list(table.index) == ["red", "blue", "a<b"]
    assert table["support"].tolist() == [6, 7, 9]
    assert table["threshold"].tolist() == [0.5, 0.25, 0.75]
    assert table["average precision"].tolist()[:2] == [0.75, 0.875]
    assert math.isnan(table.loc["a<b", "average precision"])
    assert table["precision"].tolist() == [5 / 8, 1.0, 0.9]
    assert table["recall"].tolist() == [5 / 6, 4 / 7, 1.0]
    assert table["F1"].tolist() == pytest.approx([10 / 14, 8 / 11, 18 / 19])
    assert table.loc["red", "precision ±"] == pytest.approx(math.sqrt(7 / 12 * 5 / 12 / 12))
    assert found.figure.layout.title.text.startswith("red is the label with the lowest F1: 0.71 ± 0.1")
    precision = found.figure.data[0]
    assert list(precision.x) == [5 / 8, 1.0, 0.9]
    assert list(precision.text) == [
        "red, from 0.50 on: precision",
        "blue, from 0.25 on: precision",
        "a&lt;b, from 0.75 on: precision",
    ]


def test_a_label_that_neither_occurs_nor_is_answered_has_no_scores_and_is_last(tmp_path: Path) -> None:
    run = scored(tmp_path, hits=[0, 4, 9], answered=[0, 4, 10], having=[0, 7, 9])
    found = label_scores(run)
    assert found is not None
    assert found.table["label"].tolist() == ["blue", "a<b", "red"]
    assert found.figure.layout.title.text.startswith("blue is the label with the lowest F1: 0.73")
    assert label_scores(scored(tmp_path / "none", hits=[0] * 3, answered=[0] * 3, having=[0] * 3)) is None


@pytest.mark.parametrize(
    ("together", "title", "rows"),
    [
        (
            LABELS["wrong_together"],
            "Most often, red and blue are wrong together: on 2 of the test images",
            [["red", "blue", 2], ["blue", "a<b", 1]],
        ),
        (
            [[4, 1, 0], [1, 3, 1], [0, 1, 1]],
            "2 pairs of labels are wrong together equally often: on 1 of the test images each",
            [["red", "blue", 1], ["blue", "a<b", 1]],
        ),
        ([[4, 0, 0], [0, 3, 0], [0, 0, 1]], "No test image has two wrong labels", []),
    ],
)
def test_labels_that_are_wrong_on_the_same_image(
    tmp_path: Path, together: list[list[int]], title: str, rows: list[Any]
) -> None:
    found = mistaken_together(scored(tmp_path, wrong_together=together))
    assert found is not None
    assert found.figure.layout.title.text == title
    assert found.table.to_numpy().tolist() == rows
    assert [list(row) for row in found.figure.data[0].z] == together
    assert list(found.figure.data[0].x) == ["red", "blue", "a&lt;b"]


def test_one_label_has_no_pairs(tmp_path: Path) -> None:
    one = {name: [value[0]] for name, value in LABELS.items() if name != "wrong_together"}
    run = scored(tmp_path, **one, wrong_together=[[4]])
    assert mistaken_together(run) is None
    assert run.plot.mistaken_together().layout.title.text.startswith("The run has no such score of its winner")
    assert label_scores(run) is not None
