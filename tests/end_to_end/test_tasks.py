"""From a table to an exported model by commands alone: one label, several labels and a number for each image."""

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.commands import Finished, tuner
from tuner import load_run

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # each part has quick tests
SHAPES = {"bar": (4, 22, 28, 28), "box": (18, 4, 28, 14), "dot": (4, 4, 12, 12)}
IMAGES = 120
SIZE = 32


def noise(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 50, (SIZE, SIZE, 3), dtype=np.uint8))


def shapes_of(number: int) -> list[str]:
    return [name for place, name in enumerate(SHAPES) if number * 5 // 3 >> place & 1]


def draw_shapes(number: int, shapes: list[str]) -> Image.Image:
    image = noise(number)
    for shape in shapes:
        ImageDraw.Draw(image).rectangle(SHAPES[shape], fill=("red", "lime", "blue")[list(SHAPES).index(shape)])
    return image


def one_label(number: int) -> tuple[Image.Image, dict[str, Any]]:
    shape = list(SHAPES)[number % 3]
    return draw_shapes(number, [shape]), {"label": shape}


def several_labels(number: int) -> tuple[Image.Image, dict[str, Any]]:
    shapes = shapes_of(number)
    return draw_shapes(number, shapes), {"label": ";".join(shapes)}


def columns_of_labels(number: int) -> tuple[Image.Image, dict[str, Any]]:
    shapes = shapes_of(number)
    return draw_shapes(number, shapes), {name: int(name in shapes) for name in SHAPES}


def angle(number: int) -> tuple[Image.Image, dict[str, Any]]:
    degrees = number * 0.618 % 1 * 180
    across = np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]) * 13
    image, middle = noise(number), SIZE / 2
    ImageDraw.Draw(image).line([*(middle - across), *(middle + across)], fill="white", width=4)
    return image, {"label": round(degrees, 1)}


def write_table(folder: Path, drawn: Callable[[int], tuple[Image.Image, dict[str, Any]]], **more: Any) -> None:
    """A folder of images and its table; `more` has further columns, each a function of the image's number."""
    folder.mkdir()
    rows = []
    for number in range(IMAGES):
        image, labels = drawn(number)
        image.save(folder / f"{number}.png")
        rows.append({"image": f"{number}.png", **labels, **{name: of(number) for name, of in more.items()}})
    with (folder / "labels.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def done(*arguments: str | Path, folder: Path) -> Finished:
    finished = tuner(*arguments, folder=folder, timeout=600)
    assert finished.code == 0, finished.err
    return finished


@pytest.mark.parametrize(
    ("drawn", "data", "task", "metric"),
    [
        (one_label, "photos", None, "val_accuracy"),
        (several_labels, "photos", "several", "val_map"),
        (columns_of_labels, "photos/labels.csv?label=bar&label=box&label=dot", "several", "val_map"),
        (angle, "photos/labels.csv", "number", "val_mae"),
    ],
)
def test_from_a_table_to_an_exported_model(
    drawn: Any, data: str, task: str | None, metric: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    write_table(tmp_path / "photos", drawn)
    data = f"table:{data}" if "?" in data else data
    model = ("--minutes", "1", "--weights", "none", "--models", "shufflenet_v2_x0_5")
    settings = {
        each["name"]: each["value"] for each in done("init", data, *model, "--json", folder=tmp_path).json["settings"]
    }
    assert settings["metric"] == f'"{metric}"'
    assert settings.get("task") == (task and f'"{task}"')
    assert ("with numbers from" if task == "number" else f"of 3 {'labels' if task else 'classes'}") in done(
        "check", "study.py", folder=tmp_path
    ).out
    ran = done("run", "study.py", "--trials", "2", "--wandb", "off", "--json", folder=tmp_path)
    assert ran.json["trials"]["total"] == 2
    assert metric in done("show", "runs", folder=tmp_path).out
    run = load_run(tmp_path / "runs")
    assert (Path(run.path) / "report.html").is_file()
    check_answers(tmp_path, ["photos/0.png", "photos/77.png"], task)
    again = done("resume", "runs", "--trials", "3", "--json", folder=tmp_path)
    assert again.json["trials"]["total"] == 3


def check_answers(folder: Path, photos: list[str], task: str | None) -> None:
    """What `predict` says in three forms, and the exported model's own program."""
    told = done("predict", "runs", *photos, folder=folder).out.splitlines()
    assert [line.split()[0] for line in told] == ["image", *photos]
    done("predict", "runs", *photos, "--csv", "answers.csv", folder=folder)
    rows = list(csv.DictReader((folder / "answers.csv").open()))
    records = done("predict", "runs", *photos, "--json", folder=folder).json
    done("export", "runs", "--to", "onnx", "model", folder=folder)
    program = [sys.executable, "predict.py", *(f"../{photo}" for photo in photos)]
    said = subprocess.run(program, cwd=folder / "model", capture_output=True, text=True, check=True).stdout.splitlines()
    answers = [line.split("\t")[1] for line in said]
    if task == "several":
        assert [row["labels"] for row in rows] == [";".join(each["labels"]) for each in records] == answers
        facts = json.loads((folder / "model" / "model.json").read_text())
        assert set(facts["answers"]["thresholds"]) == set(SHAPES)
    elif task == "number":
        values = [each["value"] for each in records]
        assert [float(row["value"]) for row in rows] == pytest.approx(values, rel=1e-5)
        assert [float(answer) for answer in answers] == pytest.approx(values, rel=1e-2, abs=0.5)
        assert all(each["low"] < each["high"] for each in records)
    else:
        assert [each["label"] for each in records] == [row["class"] for row in rows] == answers


STUDY = """
from torch import nn

from tuner import Budget, Folds, ImageClassifier, Random, Study, loguniform


def model(config):
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(3 * 16 * 16, OUTPUTS))


study = Study(
    "tags",
    trial=ImageClassifier("table:photos/labels.csv", model, weights=None, validation=VALIDATION),
    space={"lr": loguniform(1e-4, 1e-3), "batch_size": 16, "image_size": 32},
    search=Random(),
    budget=Budget(trials=2, max_epochs=2),
)
"""
GROUPED = {"group": lambda number: number // 2, "weight": lambda number: 1 + number % 3}


@pytest.mark.parametrize("validation", ["0.3", "Folds(3)"])
@pytest.mark.parametrize(("drawn", "facts"), [(several_labels, "thresholds.json"), (angle, "scale.json")])
def test_a_refit_keeps_what_was_learnt_of_the_winners_own_validation(
    drawn: Any, facts: str, validation: str, tmp_path: Path
) -> None:
    write_table(tmp_path / "photos", drawn, **GROUPED)
    outputs = "1" if drawn is angle else "3"
    (tmp_path / "study.py").write_text(STUDY.replace("VALIDATION", validation).replace("OUTPUTS", outputs))
    done("run", "study.py", "--wandb", "off", folder=tmp_path)
    (best,) = (tmp_path / "runs").glob("*/*/best")
    before, metrics = json.loads((best / facts).read_text()), dict(load_run(tmp_path / "runs").best_metrics)
    done("refit", "runs", folder=tmp_path)
    after, run = json.loads((best / facts).read_text()), load_run(tmp_path / "runs")
    kept = ("low", "high") if drawn is angle else ("thresholds",)
    assert [after[name] for name in kept] == [before[name] for name in kept]
    assert dict(run.best_metrics) != metrics
    told = done("predict", "runs", "photos/3.png", "--json", folder=tmp_path).json
    assert len(told) == 1
