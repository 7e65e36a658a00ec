"""A winner written for other programs: the same answers, in an environment of their own, and a card that is right."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import files, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.results.simulated import simulated
from tuner import ImageClassifier, Run, Table, load_run
from tuner.cli.export import MODELS
from tuner.errors import RunFolderError
from tuner.inspection import LoadedModel, load_model, score, write_best
from tuner.inspection.shipping import FORMS, forms, ship
from tuner.inspection.shipping.card import model_card
from tuner.inspection.shipping.examples import examples
from tuner.inspection.shipping.forms import SHIPPED, facts_of
from tuner.inspection.shipping.writing import MOST_APART, predict_script
from tuner.results.wording import wilson
from tuner.train import Trainer

pytest.importorskip("onnxruntime")


def small(config: dict[str, Any]) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    )


@pytest.fixture(scope="module")
def exported(finished: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exports") / "my model"
    ship(finished, "onnx", target)
    return target


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of several shapes and modes."""
    folder, generator = tmp_path_factory.mktemp("new photos"), np.random.default_rng(1)
    for index, (mode, shape) in enumerate([("RGB", (40, 30)), ("L", (12, 12)), ("RGBA", (25, 61)), ("P", (9, 20))]):
        pixels = generator.integers(0, 256, (*shape, 4), dtype=np.uint8)
        Image.fromarray(pixels, "RGBA").convert(mode).save(folder / f"{index}.png")
    return sorted(folder.iterdir())


def without_torch(folder: Path, libraries: tuple[str, ...]) -> Path:
    """A folder to import from that has these libraries and what they need, and nothing else of this environment."""
    known: set[str] = set()
    waiting = list(libraries)
    while waiting:
        name = waiting.pop()
        known.add(name)
        needed = [re.split(r"[^\w.-]", line)[0] for line in requires(name) or () if "extra ==" not in line]
        waiting += [other for other in needed if other not in known]
        for top in {file.parts[0] for file in files(name) or () if ".." not in file.parts and file.parts[0] != "bin"}:
            source = Path(str((files(name) or [])[0].locate())).parents[len((files(name) or [])[0].parts) - 1] / top
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)
    assert not (folder / "torch").exists()
    return folder


def answers(script: Path, photos: list[Path], path: Path) -> list[tuple[str, str, float]]:
    """What predict.py prints, by a Python that finds libraries in `path` alone."""
    start = ["-c", f"import sys; sys.path.insert(0, {str(path)!r}); import runpy; sys.argv = sys.argv[1:]; "
             "runpy.run_path(sys.argv[0], run_name='__main__')"]  # fmt: skip
    command = [sys.executable, "-I", "-S", *start, str(script), *map(str, photos)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout)


def answers_here(
    script: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[tuple[str, str, float]]:
    """What predict.py prints in this process, where it doesn't find tuner."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", [str(script), *map(str, photos)])
        patch.setitem(sys.modules, "tuner", None)
        with pytest.raises(SystemExit, match=r"^0$"):
            runpy.run_path(str(script), run_name="__main__")
    return rows_of(capsys.readouterr().out)


def rows_of(printed: str) -> list[tuple[str, str, float]]:
    rows = [line.split("\t") for line in printed.splitlines()]
    return [(file, label, float(probability)) for file, label, probability in rows]


def test_predict_py_of_an_onnx_file_answers_as_tuner_does_where_there_is_no_torch(
    finished: Run, exported: Path, photos: list[Path], tmp_path: Path
) -> None:
    libraries = without_torch(tmp_path, ("onnxruntime", "numpy", "pillow"))
    found = answers(exported / "predict.py", photos, libraries)
    expected = load_model(Path(finished.path) / "best").predict(photos)
    assert [file for file, _, _ in found] == list(map(str, photos))
    assert [label for _, label, _ in found] == [one.label for one in expected]
    assert [probability for _, _, probability in found] == pytest.approx([one.confidence for one in expected], abs=5e-3)
    assert len((exported / "predict.py").read_text().splitlines()) <= 55


def test_predict_py_answers_for_the_images_that_can_be_read_and_names_the_others(
    exported: Path, photos: list[Path], tmp_path: Path
) -> None:
    (broken := tmp_path / "a broken one.jpg").write_bytes(photos[0].read_bytes()[:40])
    missing = tmp_path / "missing.jpg"
    command = [sys.executable, str(exported / "predict.py")]
    done = subprocess.run(
        [*command, broken, photos[0], missing, photos[1]], capture_output=True, text=True, check=False
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [str(photos[0]), str(photos[1])]
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [str(broken), str(missing)]
    assert done.returncode == 1
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "usage: python predict.py IMAGE …\n")


def test_an_onnx_file_takes_batches_of_any_size_and_says_how_far_it_was_checked(finished: Run, exported: Path) -> None:
    ask, loaded = forms.onnx_answers(exported / "model.onnx"), load_model(Path(finished.path) / "best")
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 12, 12), dtype=np.uint8)
    original = forms.original_answers(loaded)(images)
    for count in (1, 2, 5):
        assert np.abs(ask(images[:count]) - original[:count]).max() <= MOST_APART
    half = forms.onnx_answers(exported / "model_fp16.onnx")(images)
    assert 0 < np.abs(half - original).max() < 0.05
    facts = json.loads((exported / "model.json").read_text())
    assert (facts["labels"], facts["opset"], facts["image_size"]) == (["blue", "green", "red"], 20, 12)
    assert [(check["file"], check["images"]) for check in facts["checks"]] == [
        ("model.onnx", 64),
        ("model_fp16.onnx", 64),
    ]
    assert facts["checks"][0]["apart"] <= MOST_APART < facts["checks"][1]["apart"]
    sizes = [(exported / name).stat().st_size for name in ("model.onnx", "model_fp16.onnx")]
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize("form", ["torch-export", "safetensors"])
def test_the_other_forms_answer_as_tuner_does(
    finished: Run,
    photos: list[Path],
    tmp_path: Path,
    form: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = ship(finished, form, tmp_path / "my model")
    assert [file.name for file in written][:3] == ["README.md", "predict.py", "model.json"]
    assert len({file.stat().st_mode for file in written}) == 1  # who may read the card may read the model
    expected = load_model(Path(finished.path) / "best").predict(photos)
    found = answers_here(written[1], photos, monkeypatch, capsys)
    assert [(label, probability) for _, label, probability in found] == [
        (one.label, pytest.approx(one.confidence, abs=5e-3)) for one in expected
    ]


def test_the_card_says_what_the_run_says(finished: Run, exported: Path) -> None:
    card = (exported / "README.md").read_text()
    accuracy, images = finished.best_metrics["test_accuracy"], finished.images["test"]
    low, _ = wilson(round(accuracy * images), images)
    assert f"Accuracy on {images} test images that no trial saw: **{accuracy:.4f}**, 95 % interval {low:.4f} to" in card
    matrix = finished.scored("confusion_matrix.json")
    for name, row in zip(matrix["classes"], matrix["counts"], strict=True):
        assert f"| {name} | {sum(row)} | " in card
    assert "It started from random weights" in card
    assert "64 random images" in card  # the run was not started from a file


@pytest.mark.parametrize(("right", "total", "interval"), [(0, 10, (0.0, 0.2775)), (8, 10, (0.4902, 0.9433))])
def test_the_interval_is_wilsons(right: int, total: int, interval: tuple[float, float]) -> None:
    assert wilson(right, total) == pytest.approx(interval, abs=1e-4)


def test_an_export_replaces_nothing_and_leaves_nothing_where_it_fails(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunFolderError, match=r"^export writes a new folder, got .* which exists; remove it or choose"):
        ship(finished, "safetensors", tmp_path)
    monkeypatch.setattr("tuner.inspection.shipping.writing.MOST_APART", -1.0)
    with pytest.raises(
        RunFolderError, match=r"^an export must answer as the original within -1, got [\d.e-]+ apart from"
    ):
        ship(finished, "safetensors", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_cant_be_traced_is_refused_in_a_sentence(finished: Run, tmp_path: Path) -> None:
    class Branching(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean((2, 3)) if float(images.mean()) > 0 else images.sum((2, 3))

    loaded = load_model(Path(finished.path) / "best")
    odd = LoadedModel(Branching(), loaded.card, loaded.device)
    with pytest.raises(
        RunFolderError, match=r"^ONNX needs a network that can be traced, got resnet18 with .* safetens"
    ):
        forms.write_onnx(odd, tmp_path / "model.onnx")


def test_the_card_of_several_networks_without_a_script_says_how_to_use_them(finished: Run) -> None:
    one = load_model(Path(finished.path) / "best")
    several = replace(one, card=replace(one.card, networks=3))
    shown, facts = examples(finished, one, trust=False), facts_of(one) | {"checks": []}
    told = model_card(finished, several, "safetensors", facts, shown, scripted=False)
    assert "The names of its 3 networks start with `networks.0.`, `networks.1.` and so on" in told
    assert "predict.py" not in told  # which isn't there
    scripted = model_card(finished, one, "safetensors", facts, shown, scripted=True)
    assert "networks.0." not in scripted
    assert scripted.count("`predict.py`") == 1


def test_the_card_of_a_functions_model_says_that_its_licence_is_unknown(finished: Run) -> None:
    one = load_model(Path(finished.path) / "best")
    own = replace(one, card=replace(one.card, model="small()"))
    shown, facts = examples(finished, one, trust=False), facts_of(one) | {"checks": []}
    told = model_card(finished, own, "onnx", facts, shown, scripted=False)
    assert "It started from what its function gave it, whose licence tuner does not know." in told


@pytest.mark.parametrize(
    ("labels", "apart", "counted"),
    [
        (["a;b", "b", ""] * 14, "of a probability", "| label | train | validation | test |"),
        ([number + 0.5 for number in range(42)], "in standard deviations", None),
    ],
    ids=["several", "number"],
)
def test_the_card_of_a_task_has_its_words(tmp_path: Path, labels: list[Any], apart: str, counted: str | None) -> None:
    generator = np.random.default_rng(0)
    for number in range(42):
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    rows = "".join(f"{number}.png,{label}\n" for number, label in enumerate(labels))
    (tmp_path / "labels.csv").write_text(f"image,label\n{rows}")
    trial = ImageClassifier(Table(tmp_path / "labels.csv"), "squeezenet1_1", weights=None)
    config = {"lr": 1e-3, "batch_size": 8, "image_size": 32}
    trainer = Trainer(trial, config, epochs=1, seed=0, split_seed=0)
    trainer.run_epoch()
    trainer.save(tmp_path / "checkpoint")
    run = simulated(tmp_path / "run")
    assert run.best is not None
    scored = score(trial, config, tmp_path / "checkpoint", split_seed=0)
    best = Path(run.path) / "best"
    write_best(best, trial, config, scored, {"trial": run.best.trial, "epoch": 1})
    run, loaded = load_run(run.path), load_model(best)
    check = {"file": "model.onnx", "bytes": 1e6, "apart": 1e-7, "accuracy": None, "labelled": 0, "milliseconds": 1.0}
    facts = facts_of(loaded) | {"checks": [check]}
    shown = examples(run, loaded, trust=False)
    counts = {part: dict.fromkeys(loaded.classes if counted else (), 3) for part in ("train", "validation", "test")}
    told = model_card(run, loaded, "onnx", facts, replace(shown, missing=None, counts=counts), scripted=True)
    assert f"| file | size | largest difference {apart} | right answers | one image |" in told
    assert counted is None or counted in told
    assert "| class |" not in told


def test_a_script_is_left_out_where_it_could_not_work(finished: Run) -> None:
    loaded = load_model(Path(finished.path) / "best")
    assert all(predict_script(form, loaded) for form in FORMS if form != "hub")  # type: ignore[arg-type]
    inputs = type(loaded.card.inputs)(2, 12, loaded.card.inputs.normalisation)
    card = type(loaded.card)("small()", "my_data()", "None", loaded.classes, inputs)
    assert predict_script("onnx", LoadedModel(small({}), card, loaded.device)) is None


def test_the_command_knows_each_form() -> None:
    assert MODELS == FORMS == tuple(SHIPPED)


def test_the_libraries_of_the_extra_are_named() -> None:
    assert all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
