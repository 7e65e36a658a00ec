"""What is known of the hub's models from their two configuration files, without transformers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import hub_cache
from tuner.errors import StudyError, WeightsError
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing
from tuner.trial.models import find_model

NORMAL = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}
DINOV2 = {
    **NORMAL,
    "size": {"shortest_edge": 256},
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "resample": 3,
}
SQUARE = {**NORMAL, "size": {"height": 224, "width": 224}, "resample": 2}
CONVNEXT = {**NORMAL, "size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return hub_cache.offline(tmp_path, monkeypatch)


def put(home: Path, config: Any, processor: Any, commit: str = hub_cache.COMMIT) -> Path:
    files = {"config.json": config, "preprocessor_config.json": processor}
    return hub_cache.put(
        home, "facebook/some", {name: json.dumps(told).encode() for name, told in files.items()}, commit
    )


@pytest.mark.parametrize(
    ("config", "processor", "framing", "takes"),
    [
        ({"model_type": "dinov2", "patch_size": 14}, DINOV2, Framing(224, 256, "bicubic"), (True, 14, 224)),
        ({"model_type": "vit", "patch_size": 16}, SQUARE, Framing(224, 224, "bilinear", squash=True), (True, 16, 224)),
        ({"model_type": "vit", "patch_size": 16}, {**SQUARE, "size": 96}, None, None),
        (
            {"model_type": "swin", "patch_size": 4},
            SQUARE,
            Framing(224, 224, "bilinear", squash=True),
            (True, None, 224),
        ),
        ({"model_type": "convnext", "patch_size": 4}, CONVNEXT, Framing(224, 256, "bicubic"), (False, None, 32)),
        (
            {"model_type": "resnet"},
            {**CONVNEXT, "size": {"shortest_edge": 384}},
            Framing(384, 384, "bicubic", squash=True),
            (False, None, 32),
        ),
        (
            {"model_type": "siglip", "vision_config": {"patch_size": 16}},
            SQUARE,
            Framing(224, 224, "bilinear", squash=True),
            (True, 16, 224),
        ),
    ],
)
def test_size_crop_and_positions_are_those_of_the_configuration(
    config: Any, processor: Any, framing: Framing | None, takes: Any, home: Path
) -> None:
    put(home, config, processor)
    if framing is None:  # a size that is one number and no crop
        with pytest.raises(StudyError, match=r"must bring images to one square size"):
            find_model("hf:facebook/some")
        return
    facts = find_model("hf:facebook/some")
    weights = facts.find_weights("pretrained")
    assert weights.preprocessing.framing == framing
    assert (weights.preprocessing.mean, weights.preprocessing.sd) == ((0.5,) * 3, (0.25,) * 3)
    assert (facts.fixed_size, facts.step, facts.min_size) == takes


@pytest.mark.parametrize(
    "change",
    [
        {"size": {"height": 224, "width": 192}},
        {"size": {"longest_edge": 224}},
        {"size": None},
        {"resample": 1},
        {"resample": "cubic"},
        {"image_mean": None},
        {"do_resize": False},
        {"rescale_factor": 1.0},
        {"rescale_offset": True},
    ],
)
def test_images_that_tuner_cant_prepare_are_refused(change: dict[str, Any], home: Path) -> None:
    put(home, {"model_type": "vit", "patch_size": 16}, SQUARE | change)
    with pytest.raises(StudyError, match=r"^preprocessor_config.json of hf:facebook/some must bring images to one sq"):
        find_model("hf:facebook/some")


@pytest.mark.parametrize("name", ["hf:", "hf:dinov2-small", "hf:a/b/c", "hf:/b", "hf:a/", "hf:../b", "hf:a b/c"])
def test_names_that_no_repository_has_are_refused(name: str, home: Path) -> None:
    with pytest.raises(StudyError, match=r"^a model of the hub is 'hf:OWNER/NAME', got .*; for example 'hf:facebook"):
        find_model(name)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe"])
def test_damaged_configurations_are_refused(content: bytes, home: Path) -> None:
    folder = hub_cache.put(home, "facebook/some", {"config.json": content, "preprocessor_config.json": b"{}"})
    with pytest.raises(WeightsError, match=rf"must be a JSON object, got {folder}/config.json: .*; fetch it again$"):
        find_model("hf:facebook/some")


def test_a_missing_configuration_is_named_with_its_place(home: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        find_model("hf:facebook/dinov2-small")
    assert str(caught.value).endswith("; copy config.json there, or name another model")  # no weights help
    assert str(caught.value).startswith(
        f"hf:facebook/dinov2-small needs {home}/hub/models--facebook--dinov2-small/snapshots/main/config.json, "
        "which isn't there, and facebook/dinov2-small can't be fetched from the Hugging Face hub ("
    )


def test_a_run_reads_the_configuration_of_its_own_commit(home: Path) -> None:
    put(home, {"model_type": "dinov2", "patch_size": 14}, DINOV2, "f" * 40)
    trial = ImageClassifier("digits", "hf:facebook/some", weights="pretrained").pinned_again(
        None, f"facebook/some@{'f' * 40}"
    )[0]
    put(home, {"model_type": "vit", "patch_size": 16}, SQUARE)
    assert trial.model_facts.step == 14
    assert ImageClassifier("digits", "hf:facebook/some").model_facts.step == 16


def test_a_check_loads_neither_library(home: Path) -> None:
    put(home, {"model_type": "dinov2", "patch_size": 14}, DINOV2)
    code = (
        "import sys; from tuner.trial import ImageClassifier; "
        "print(ImageClassifier('digits', 'hf:facebook/some').default_image_size, "
        "ImageClassifier('digits', 'timm:resnet18').default_image_size, "
        "sorted({'torch', 'timm', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "224 224 []\n"
