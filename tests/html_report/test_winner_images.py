"""What the report shows of the winner's images and calibration."""

import json
from pathlib import Path

from tests.results.simulated import simulated
from tuner import load_run
from tuner.html_report import report_html

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
SHOWN = {"index": 3, "label": "cat", "predicted": "cat", "confidence": 0.4, "image": PIXEL}


def test_the_least_sure_images_stand_beside_where_the_winner_looked(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    run.folder.write("best/least_sure.json", json.dumps([{**SHOWN, "saliency": PIXEL}]).encode())
    page = report_html(load_run(tmp_path))
    assert "What it is least sure about" not in report_html(simulated(tmp_path / "older"))
    assert "What it is least sure about" in page
    assert 'alt="where the winner looked in test image 3"' in page


def test_names_with_markup_are_written_once_escaped_in_titles(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    matrix = {"classes": ["a&b", "<i>c"], "counts": [[5, 3], [1, 9]]}
    run.folder.write("best/confusion_matrix.json", json.dumps(matrix).encode())
    page = report_html(load_run(tmp_path))
    assert "Most often, a&amp;b is taken for &lt;i&gt;c: 3 of the test images" in page
    assert "&amp;amp;" not in page
    assert "<i>c" not in page
