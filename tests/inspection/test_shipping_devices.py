"""A winner in 8 bits and for OpenVINO: the loss of accuracy is measured, and refused where it is too large."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from tests.commands import run_main
from tests.inspection.conftest import trained_run
from tests.inspection.test_shipping import answers_here
from tests.test_init import NEEDS_WEIGHTS, torch_home
from tuner import ImageClassifier, Run
from tuner.errors import RunFolderError
from tuner.inspection import load_model
from tuner.inspection.shipping import forms, ship, writing
from tuner.inspection.tasks import answers_of
from tuner.train.tasks import targets_of
from tuner.trial import Folds
from tuner.trial.tasks import TASKS

pytest.importorskip("openvino")

SMALL: dict[str, Any] = {"lr": 1e-3, "batch_size": 16, "image_size": 16, "optimizer": "adam"}


@pytest.fixture(scope="module")
def coloured(colours: ImageClassifier, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_run(tmp_path_factory.mktemp("coloured"), colours, SMALL, epochs=4)


@pytest.fixture(scope="module")
def quantised(coloured: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exports") / "in 8 bits"
    ship(coloured, "int8", target, max_drop=0.2)
    return target


def weights_and_scales(file: Path) -> list[tuple[onnx.TensorProto, onnx.TensorProto]]:
    """Of each quantised convolution: its integers, and by what they are multiplied."""
    graph = onnx.load(file).graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    made = {node.output[0]: node for node in graph.node}
    layers = [made[node.input[1]] for node in graph.node if node.op_type == "Conv"]
    assert {node.op_type for node in layers} == {"DequantizeLinear"}
    return [(tensors[node.input[0]], tensors[node.input[1]]) for node in layers]


def test_weights_are_integers_with_a_scale_for_each_channel_and_no_batch_norm_is_left(
    coloured: Run, quantised: Path, tmp_path: Path
) -> None:
    pairs = weights_and_scales(quantised / "model_int8.onnx")
    assert len(pairs) == 20
    assert all(weights.data_type == onnx.TensorProto.INT8 for weights, _ in pairs)
    assert all(list(scales.dims) == list(weights.dims)[:1] for weights, scales in pairs)
    operators = {node.op_type for node in onnx.load(quantised / "model_int8.onnx").graph.node}
    assert "QuantizeLinear" in operators
    assert "BatchNormalization" not in operators
    names = [path.name for path in sorted(quantised.iterdir())]
    assert names == ["README.md", "model.json", "model_int8.onnx", "pixels.py", "predict.py"]
    facts = json.loads((quantised / "model.json").read_text())
    assert [check["file"] for check in facts["checks"]] == ["model_int8.onnx", "float32.onnx"]
    assert facts["checks"][0]["bytes"] < 0.3 * facts["checks"][1]["bytes"]
    assert facts["checks"][1]["apart"] < 1e-4 < facts["checks"][0]["apart"] < 0.3
    loaded = load_model(Path(coloured.path) / "best")
    assert json.loads(onnx.load(quantised / "model_int8.onnx").metadata_props[0].value) == forms.facts_of(loaded)


def test_card_and_model_json_say_what_was_lost_and_how_long_an_image_takes(coloured: Run, quantised: Path) -> None:
    lost, times = json.loads((quantised / "model.json").read_text())["measured"]
    card = (quantised / "README.md").read_text()
    assert lost in card
    assert times in card
    assert lost.startswith("Accuracy 0.")
    assert f"validation images, {coloured_accuracy(coloured):.4f} before the export" in lost
    assert "ms (" in times
    assert times.endswith("in float32 by onnxruntime: medians and quartiles.")
    assert "training images (static quantisation, QDQ)" in card


def coloured_accuracy(run: Run) -> float:
    shown = writing.examples(run, load_model(Path(run.path) / "best"), trust=False, loses=True)
    assert shown.validated is not None
    name, images, labels = shown.validated
    assert name == "validation"
    answers = forms.original_answers(load_model(Path(run.path) / "best"))(images)
    return float((answers.argmax(1) == labels.numpy()).mean())


@pytest.mark.parametrize("form", ["int8", "openvino"])
def test_predict_py_answers_as_tuner_does(
    form: Any, coloured: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = ship(coloured, form, tmp_path / "my model", max_drop=1.0)
    assert len({file.stat().st_mode for file in written}) == 1
    photos = [tmp_path / f"{number}.png" for number in range(3)]
    for number, photo in enumerate(photos):
        colour = [(40, 60, 200), (40, 190, 70), (210, 50, 40)][number]
        Image.new("RGB", (40, 30), colour).save(photo)
    found = answers_here(tmp_path / "my model" / "predict.py", photos, monkeypatch, capsys)
    expected = load_model(Path(coloured.path) / "best").predict(photos)
    within = 1e-3 if form == "openvino" else 0.3
    assert [probability for _, _, probability in found] == pytest.approx(
        [one.confidence for one in expected], abs=within
    )
    assert form == "int8" or [label for _, label, _ in found] == [one.label for one in expected]


def test_openvinos_files_are_its_ir_in_float32_whose_size_counts_both(coloured: Run, tmp_path: Path) -> None:
    ship(coloured, "openvino", tmp_path / "ir", max_drop=0.0)
    names = [path.name for path in sorted((tmp_path / "ir").iterdir())]
    assert names == ["README.md", "model.bin", "model.json", "model.xml", "pixels.py", "predict.py"]
    check, _ = json.loads((tmp_path / "ir" / "model.json").read_text())["checks"]
    sizes = [(tmp_path / "ir" / name).stat().st_size for name in ("model.bin", "model.xml")]
    assert (check["bytes"], check["apart"] <= 1e-4) == (sum(sizes), True)
    loaded = load_model(Path(coloured.path) / "best")
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 16, 16), dtype=np.uint8)
    ask = forms.openvino_answers(tmp_path / "ir" / "model.xml")
    for count in (1, 5):
        assert np.abs(ask(images[:count]) - forms.original_answers(loaded)(images[:count])).max() <= 1e-4


def test_a_loss_above_what_is_allowed_is_refused_by_the_command_and_leaves_nothing(
    coloured: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples: Callable[..., Any] = writing.examples

    def black(*given: Any, **options: Any) -> Any:
        shown = examples(*given, **options)
        return replace(shown, training=np.zeros_like(shown.training))

    monkeypatch.setattr(writing, "examples", black)  # ranges of black images suit no others
    code, out, err = run_main(capsys, "export", coloured.path, "--to", "int8", tmp_path / "new")
    assert (code, out) == (2, "")
    assert err.startswith("tuner: an export may lose 0.01 by --max-drop, got 0.")
    assert err.endswith("before the export); raise it, or use --to onnx\n")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_was_measured(coloured: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_main(capsys, "export", coloured.path, "--to", "openvino", tmp_path / "a model")
    assert code == 0, err
    assert str(tmp_path / "a model" / "model.xml") in out.splitlines()
    assert [line.split()[0] for line in err.splitlines()] == ["Accuracy", "One"]
    code, _, err = run_main(capsys, "export", coloured.path, "--to", "int8", tmp_path / "b", "--max-drop", "-1")
    assert code == 2
    assert "--max-drop" in err


def test_int8_without_training_images_is_refused(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"^an export to int8 needs training images, .* use --to onnx$"):
        ship(finished, "int8", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named_with_its_extra(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "find_spec", lambda name: None if name in ("openvino", "timm") else name)
    with pytest.raises(
        RunFolderError, match=r"got an installation without openvino; pip install 'image-tuner\[openvino"
    ):
        ship(finished, "openvino", tmp_path / "new")
    with pytest.raises(RunFolderError, match=r"without timm; pip install 'image-tuner\[hf,timm\]'$"):
        ship(finished, "hub", tmp_path / "new")


def test_networks_of_a_cross_validation_are_quantised_together_and_measured_on_test_images(
    colours: ImageClassifier, tmp_path: Path
) -> None:
    folded = replace(colours, model="squeezenet1_1", validation=Folds(2))
    run = trained_run(tmp_path / "folded", folded, SMALL | {"image_size": 32}, epochs=1)
    ship(run, "int8", tmp_path / "new", max_drop=1.0)
    lost, _ = json.loads((tmp_path / "new" / "model.json").read_text())["measured"]
    assert " test images, " in lost
    assert len(weights_and_scales(tmp_path / "new" / "model_int8.onnx")) == 2 * 26


def test_the_quality_of_numbers_is_their_error() -> None:
    answers = answers_of(targets_of(TASKS["number"])(("age",)).with_facts({"mean": 10.0, "deviation": 2.0}))
    told = answers.quality(torch.tensor([[10.0], [16.0]]), torch.tensor([[11.0], [13.0]]))
    assert told == pytest.approx(-1.0)
    assert answers.measure == "negative mean absolute error in standard deviations"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet18", pytest.param("mobilenet_v2", marks=NEEDS_WEIGHTS)])
def test_real_networks_lose_little(
    model: str, real_data: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SMALL | {"batch_size": 64, "image_size": 16 if model == "resnet18" else 96}
    trial = ImageClassifier("digits", model, weights=None)
    if model == "mobilenet_v2":
        monkeypatch.setenv("TORCH_HOME", str(torch_home(tmp_path / "torch")))
        trial = ImageClassifier(f"folder:{real_data('photos') / 'photos' / 'signs'}", model, weights="IMAGENET1K_V1")
    run = trained_run(tmp_path / "searched", trial, config, epochs=5)
    ship(run, "int8", tmp_path / "new", max_drop=0.02)
    checks = json.loads((tmp_path / "new" / "model.json").read_text())["checks"]
    assert checks[0]["bytes"] < 0.31 * checks[1]["bytes"]  # MobileNetV2 has 0.302, as its layers are small
