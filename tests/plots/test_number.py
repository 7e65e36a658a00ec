"""Plots of a winner that answers a number: exact figures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.results.simulated import simulated
from tuner import Run, load_run
from tuner.plots.number import errors_by_target, predicted_against_true

METRICS = {"trial": "00000", "metrics": {"test_mae": 1.5, "test_r2": 0.96}}


def scored(folder: Path, labels: Any, answers: Any, metrics: Any = METRICS) -> Run:
    run = simulated(folder)
    numbers = {"name": "age & all", "labels": list(labels), "answers": list(answers)}
    for name, content in (("numbers", numbers), ("metrics", metrics)):
        run.folder.write(f"best/{name}.json", json.dumps(content).encode())
    return load_run(folder)


def test_answers_stand_beside_the_true_numbers_the_largest_error_first(tmp_path: Path) -> None:
    found = predicted_against_true(scored(tmp_path, [1.0, -2.0, 10.0], [1.5, -2.0, 7.0]))
    assert found is not None
    assert found.figure.layout.title.text == "Answers are 1.5 off the true age &amp; all on average (R² 0.96)"
    assert found.table.to_numpy().tolist() == [[10.0, 7.0, -3.0], [1.0, 1.5, 0.5], [-2.0, -2.0, 0.0]]
    points, diagonal = found.figure.data
    assert (list(points.x), list(points.y)) == ([10.0, 1.0, -2.0], [7.0, 1.5, -2.0])
    assert list(diagonal.x) == list(diagonal.y) == [-2.0, 10.0]
    assert found.figure.layout.xaxis.title.text == "true age &amp; all"


@pytest.mark.parametrize(
    ("metrics", "title"),
    [
        ({"test_mae": 0.25, "test_r2": None}, "Answers are 0.25 off the true age &amp; all on average"),
        ({}, "Answers and the true age &amp; all"),
    ],
)
def test_a_title_says_what_is_known(tmp_path: Path, metrics: dict[str, Any], title: str) -> None:
    run = scored(tmp_path, [1.0, 1.0], [1.25, 0.75], {"trial": "00000", "metrics": metrics})
    found = predicted_against_true(run)
    assert found is not None
    assert found.figure.layout.title.text == title


def test_of_many_images_a_part_with_the_largest_error_is_drawn(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    truth = generator.uniform(0, 100, 100_000)
    answers = truth + generator.normal(0, 2, 100_000)
    answers[77] += 50
    found = predicted_against_true(scored(tmp_path, truth, answers))
    assert found is not None
    points, diagonal = found.figure.data
    assert (len(found.table), len(points.x), len(points.y)) == (100_000, 2_942, 2_942)
    assert (points.x[0], points.y[0]) == (truth[77], answers[77])
    assert (diagonal.x[0], diagonal.x[1]) == (truth.min(), truth.max())
    drawn = np.abs(np.array(points.y) - np.array(points.x))
    assert np.median(drawn) == pytest.approx(np.median(np.abs(answers - truth)), abs=0.01)
    assert "; 1 image of 34 is drawn" in found.figure.layout.title.text.replace("<br>", " ")
    assert len(found.figure.to_json()) < 200_000


def test_errors_are_told_by_ranges_of_the_true_number(tmp_path: Path) -> None:
    truth = [float(number) for number in range(40)]
    errors = [-1.0, 0.0, 0.0, 1.0, 4.0] * 6 + [-6.0, -8.0, -10.0, -12.0, -14.0] * 2
    run = scored(tmp_path, truth, [number + error for number, error in zip(truth, errors, strict=True)])
    found = errors_by_target(run)
    assert found is not None
    assert found.figure.layout.title.text == "Errors are largest for age &amp; all 30.0 to 39.0: 10 on average"
    table = found.table
    assert table["range"].tolist() == ["0.0 to 10.0", "10.0 to 20.0", "20.0 to 30.0", "30.0 to 39.0"]
    assert table["images"].tolist() == [10] * 4
    assert table["true"].tolist() == [4.5, 14.5, 24.5, 34.5]
    assert table.iloc[0, 3:].tolist() == [0.0, 0.0, 1.0, 1.2]
    assert table.iloc[3, 3:].tolist() == [-12.0, -10.0, -8.0, 10.0]
    (marks,) = found.figure.data
    assert list(marks.x) == [4.5, 14.5, 24.5, 34.5]
    assert list(marks.y) == [0.0] * 3 + [-10.0]
    assert (list(marks.error_y.array)[3], list(marks.error_y.arrayminus)[3]) == (2.0, 2.0)


def test_few_different_numbers_are_ranges_by_themselves(tmp_path: Path) -> None:
    found = errors_by_target(scored(tmp_path, [3.0, 3.0, 5.0], [3.5, 2.5, 5.0]))
    assert found is not None
    assert found.table["range"].tolist() == ["3.0", "5.0"]
    assert found.figure.layout.title.text == "Errors are largest for age &amp; all 3.0: 0.5 on average"


def test_a_winner_of_classes_has_no_numbers(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    assert predicted_against_true(run) is errors_by_target(run) is None
    assert run.plot.errors_by_target().layout.title.text.startswith("The run has no such score of its winner")
