"""The hub's layout: timm and transformers load it where there is no tuner, and answer to image files as tuner does."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests import hub_cache
from tests.inspection.conftest import trained_run
from tests.train.models.test_hubs import put
from tuner import ImageClassifier, Run
from tuner.errors import RunFolderError
from tuner.inspection import LoadedModel, load_model
from tuner.inspection.shipping import hub_layout, ship
from tuner.inspection.shipping.hub_layout import write_hub
from tuner.inspection.shipping.writing import MOST_APART

SIZES = ((150, 260), (300, 200), (190, 190), (222, 333))  # height, width
# What someone without tuner does with the folder; prints the probabilities of each file, in the order of the labels.
BY_TRANSFORMERS = """
from transformers import AutoModelForImageClassification, pipeline

model = AutoModelForImageClassification.from_pretrained(folder)
assert model.config.id2label == dict(enumerate(labels)), model.config.id2label
ask = pipeline("image-classification", model=folder, device="cpu")
answers.append([[one["score"] for label in labels for one in ask(file) if one["label"] == label] for file in files])
"""
BY_TIMM = """
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config

model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
transform = create_transform(**resolve_data_config({}, model=model))
with torch.inference_mode():
    answers.append([model(transform(Image.open(file).convert("RGB"))[None]).softmax(1)[0].tolist() for file in files])
"""
SCRIPT = """
import json, sys
folder, labels, files = json.loads(sys.argv[1])
answers = []
{steps}
assert "tuner" not in sys.modules
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 of two classes: real flowers, or what looks like photos where there are none."""
    root, draws = tmp_path_factory.mktemp("hub") / "my photos", np.random.default_rng(0)
    flowers = Path(os.environ.get("TUNER_TEST_DATA", "data")) / "photos" / "flowers"
    for label in ("daisy", "tulip"):
        (root / label).mkdir(parents=True)
        real = sorted((flowers / label).iterdir()) if flowers.is_dir() else []
        for number in range(30):
            if real:
                (root / label / f"{number}.jpg").write_bytes(real[number].read_bytes())
                continue
            height, width = SIZES[number % len(SIZES)]
            coarse = Image.fromarray(draws.integers(0, 200 if label == "tulip" else 256, (9, 11, 3), dtype=np.uint8))
            coarse.resize((width, height), Image.Resampling.BICUBIC).save(root / label / f"{number}.jpg", quality=95)
    return root


def without_tuner(folder: Path, run: Run, files: list[Path], *steps: str) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [steps, files, classes] by other libraries in a process of its own, and tuner's."""
    loaded = load_model(Path(run.path) / "best")
    given = json.dumps([str(folder), list(loaded.classes), list(map(str, files))])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(steps="".join(steps)), given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = [[dict(one.top5)[label] for label in loaded.classes] for one in loaded.predict(files)]
    return np.array(json.loads(done.stdout)), np.array(expected)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("resnet18", {"image_size": 64}),
        ("timm:test_vit", {"image_size": 96}),
    ],
)
def test_both_libraries_answer_to_photos_as_tuner_does(
    model: str, config: dict[str, Any], photos: Path, tmp_path: Path
) -> None:
    trial = ImageClassifier(f"folder:{photos}", model, weights=None)
    run = trained_run(tmp_path, trial, {"lr": 3e-4, "batch_size": 8, "optimizer": "adam", **config}, epochs=1)
    target = tmp_path / "for the hub"
    written = ship(run, "hub", target)
    assert [path.name for path in written] == [
        *("README.md", "config.json", "model.json", "model.safetensors", "preprocessor_config.json"),
    ]
    card = (target / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: timm\npipeline_tag: image-classification\n")
    measured = json.loads((target / "model.json").read_text())["measured"]
    assert [sentence.split()[0] for sentence in measured] == ["transformers", "timm"]
    assert all(sentence in card for sentence in measured)
    files = sorted(photos.rglob("*.jpg"))[::5]
    found, expected = without_tuner(target, run, files, BY_TRANSFORMERS, BY_TIMM)
    assert np.abs(found[0] - expected).max() <= MOST_APART < np.ptp(expected[:, 0])
    assert np.abs(found[1] - expected).max() <= 0.1  # it cuts the square out after it has resized


def test_published_weights_of_timm_are_framed_by_timm_in_both_libraries(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_cache.put_timms(hub_cache.offline(tmp_path, monkeypatch), "test_vit.r160_in1k")
    trial = ImageClassifier(f"folder:{photos}", "timm:test_vit", weights="r160_in1k")
    run = trained_run(tmp_path / "searched", trial, {"lr": 3e-3, "batch_size": 8, "optimizer": "adam"})
    target = tmp_path / "for the hub"
    names = [path.name for path in ship(run, "hub", target)]
    assert names == ["README.md", "config.json", "model.json", "model.safetensors"]
    files = sorted(photos.rglob("*.jpg"))[::5]
    found, expected = without_tuner(target, run, files, BY_TRANSFORMERS, BY_TIMM)
    assert np.abs(found - expected).max() <= MOST_APART < np.ptp(expected[:, 0])


@pytest.mark.parametrize("family", ["vit", "convnext"])
def test_a_model_of_transformers_answers_to_photos_as_tuner_does(
    family: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(hub_cache.offline(tmp_path, monkeypatch), tmp_path, family)
    trial = ImageClassifier(f"folder:{photos}", f"hf:tiny/{family}", weights="pretrained")
    config = {"lr": 3e-3, "batch_size": 8, "optimizer": "adam"}
    run = trained_run(tmp_path / "searched", trial, config, weights_fingerprint=f"tiny/{family}@{hub_cache.COMMIT}")
    written = ship(run, "hub", tmp_path / "for the hub")
    assert "library_name: transformers\n" in written[0].read_text()
    files = sorted(photos.rglob("*.jpg"))[::5]
    found, expected = without_tuner(tmp_path / "for the hub", run, files, BY_TRANSFORMERS)
    assert np.abs(found - expected).max() <= MOST_APART < np.ptp(expected[:, 0])


def test_what_neither_library_has_is_refused_with_the_reason_and_what_works(finished: Run, tmp_path: Path) -> None:
    one = load_model(Path(finished.path) / "best")
    card = one.card
    others = {
        "a model that the function small() makes": replace(card, model="small()"),
        "an average of several networks": replace(card, networks=3),
        "answers that are the mean for an image and its mirror image (test_time_flip)": replace(
            card, test_time_flip=True
        ),
        "a stem for images of 1 channels": replace(card, inputs=replace(card.inputs, channels=1)),
        "mobilenet_v2, which timm doesn't have": replace(card, model="mobilenet_v2"),
        "vit_b_16, which timm doesn't have": replace(
            card, model="vit_b_16", inputs=replace(card.inputs, image_size=224)
        ),
        "vgg11, whose weights don't fit timm's (other names, or another head by pooling and blocks)": replace(
            card, model="vgg11"
        ),
        "a model for number of the task 'number'": replace(card, task="number", classes=("age",)),
    }
    for reason, other in others.items():
        facts = {"mean": 0.0, "deviation": 1.0} if other.task == "number" else {}
        with pytest.raises(RunFolderError) as refused:
            write_hub(LoadedModel(one.module, other, one.device, facts), tmp_path / "model.safetensors")
        assert f"got {reason}; use --to onnx, or --to safetensors" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["weights", "processor"])
def test_a_folder_that_answers_otherwise_is_not_written(
    broken: str, finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broken == "weights":
        saved = hub_layout.save_file
        monkeypatch.setattr(
            hub_layout, "save_file", lambda state, file: saved({**state, "fc.weight": 1.1 * state["fc.weight"]}, file)
        )
        message = "an export must answer as the original within 0.0001, got"
    else:
        right = hub_layout._processor
        monkeypatch.setattr(hub_layout, "_processor", lambda loaded: {**right(loaded), "image_std": [9.0, 9.0, 9.0]})
        monkeypatch.setattr(hub_layout, "_timms_reader", lambda folder: lambda path: np.full(3, 1 / 3))
        message = "an export to the hub's layout must be read as in training, got answers to image files that are"
    with pytest.raises(RunFolderError, match=f"^{message}"):
        ship(finished, "hub", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
