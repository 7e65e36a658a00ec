"""The report of each task: its own plots and no others, its metrics first, its mistakes in its words."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.results.kinds_of_runs import PIXEL, accuracy, searched
from tuner import Budget, Run, load_run, loguniform
from tuner.html_report import report_html
from tuner.mirrors.wandb_summary import SECTIONS
from tuner.plots import of_tasks
from tuner.trial.tasks import TASKS

CALIBRATION: dict[str, Any] = {
    **{"temperature": None, "scaled_ece": None, "accuracy": 0.9, "confidence": 0.8, "ece": 0.1},
    **{"bins": [{"images": 10, "confidence": 0.8, "accuracy": 0.9}], "scaled_bins": []},
}
OF_TASK: dict[str, dict[str, Any]] = {
    "one": {
        "confusion_matrix": {"classes": ["a", "b"], "counts": [[4, 1], [0, 5]]},
        "calibration": CALIBRATION,
        "mistakes": [{"index": 3, "label": "a", "predicted": "b", "confidence": 0.98, "image": PIXEL}],
    },
    "several": {
        "labels": {
            **{"labels": ["a", "b"], "thresholds": [0.5, 0.5], "hits": [1, 2], "answered": [2, 2], "having": [3, 2]},
            **{"average_precision": [0.5, 1.0], "wrong_together": [[3, 1], [1, 1]]},
        },
        "calibration": CALIBRATION,
        "mistakes": [{"index": 3, "label": "a, b", "predicted": "none", "image": PIXEL}],
    },
    "number": {
        "numbers": {"name": "age", "labels": [1.0, 12.3], "answers": [2.0, 14.0]},
        "mistakes": [{"index": 3, "label": "12.3", "predicted": "14", "image": PIXEL}],
    },
}
DRAWN = {
    "one": {"confusion-matrix", "classes", "calibration"},
    "several": {"labels", "wrong-together", "calibration"},
    "number": {"predicted-against-true", "errors-by-target"},
}
ANSWERED = {"one": "<span>b (98%)<br>is a</span>", "several": "<span>none<br>is a, b</span>"}
ANSWERED |= {"number": "<span>14<br>is 12.3</span>"}


def of_task(folder: Path, name: str, metric: str | None = None) -> Run:
    """A run whose trials report the task's metrics, all alike, and whose winner is scored as one of the task."""
    task = TASKS[name]

    def train(config: dict[str, Any], number: int, epoch: int) -> dict[str, float]:
        value = accuracy(config, number, epoch)["val_accuracy"]
        return {f"val_{one}": value if better == "max" else 5 - value for one, better in task.metrics.items()}

    metric = metric or task.metric
    mode = task.metrics[metric.removeprefix("val_")]
    space = {"lr": loguniform(1e-4, 1e-1)}
    run = searched(folder, train, space=space, metric=metric, mode=mode, budget=Budget(trials=4, max_epochs=3))
    best = run.best
    assert best is not None
    tested = {f"test_{one}": 0.75 for one in reversed(task.metrics)}
    metrics = {"trial": best.trial, "metrics": tested, "images": {"validation": 100, "test": 100}}
    for file, content in {**OF_TASK[name], "metrics": metrics}.items():
        run.folder.write(f"best/{file}.json", json.dumps(content).encode())
    return load_run(folder)


@pytest.mark.parametrize("name", TASKS)
def test_a_report_draws_exactly_the_plots_of_its_task(tmp_path: Path, name: str) -> None:
    run = of_task(tmp_path, name)
    page = report_html(run)
    section = page[page.index('id="wrong"') : page.index('id="trials"')]
    assert set(re.findall(r'id="plot-([\w-]+)"', section)) == DRAWN[name]
    assert re.search(r"<li>.*" + re.escape(ANSWERED[name]), section)
    assert run.damages == []


@pytest.mark.parametrize("name", TASKS)
def test_a_notebook_has_the_plots_of_each_task(tmp_path: Path, name: str) -> None:
    run = of_task(tmp_path, name)
    shown = {plot for plot in of_tasks() if not _is_empty(getattr(run.plot, plot)())}
    assert shown == {path.rpartition(":")[2] for path in TASKS[name].plots}
    assert {*of_tasks()} <= {*dir(run.plot)} & {*run.plot.names()} & {*SECTIONS["winner"]}
    with pytest.raises(AttributeError, match=r"a run has no plot 'confusions'; there are history, .*calibration"):
        run.plot.confusions()


@pytest.mark.parametrize(
    ("name", "metric", "lead"),
    [
        ("one", "val_accuracy", r"with <strong>val_accuracy 0\.5\d+</strong>, 95 % interval 0\.\d+ to 0\.\d+ of 100 "),
        ("one", "val_loss", r"with <strong>val_accuracy 0\.\d+</strong>, 95 % interval [^<]+ images, and val_loss 4\."),
        ("several", "val_map", r"with <strong>val_map 0\.\d+</strong> after epoch"),
        ("several", "val_loss", r"with <strong>val_map 0\.\d+</strong>, and val_loss 4\.\d+ after epoch"),
        (
            "several",
            "val_subset_accuracy",
            r"<strong>val_map 0\.\d+</strong>, and val_subset_accuracy 0\.\d+, 95 % int",
        ),
        ("number", "val_mae", r"with <strong>val_mae 4\.\d+</strong> after epoch"),
        ("number", "val_r2", r"with <strong>val_mae 4\.\d+</strong>, and val_r2 0\.\d+ after epoch"),
    ],
)
def test_the_tasks_own_metric_comes_first(tmp_path: Path, name: str, metric: str, lead: str) -> None:
    page = report_html(of_task(tmp_path, name, metric))
    assert re.search(lead, page)
    tested = TASKS[name].metric.replace("val_", "test_")
    share = " ± 0.043" if name == "one" else ""
    assert f"on the test split <strong>{tested} 0.75{share}</strong>." in page


@pytest.mark.parametrize(("metric", "certain"), [("val_map", False), ("val_subset_accuracy", True)])
def test_only_shares_of_images_have_an_error_by_their_number(tmp_path: Path, metric: str, certain: bool) -> None:
    page = report_html(of_task(tmp_path, "several", metric))
    assert ("Of 100 validation images it gets" in page) is certain
    assert ("One training of each can't show" in page) is not certain


def _is_empty(figure: Any) -> bool:
    return not figure.data
