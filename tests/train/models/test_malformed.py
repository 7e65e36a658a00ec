"""Names and files that no model can be made of: each is refused in a sentence with the rule, the value and a fix."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests import hub_cache
from tests.train.models.test_hubs import FAMILIES, put
from tuner.errors import TunerError
from tuner.space import Space
from tuner.train.models import build_network
from tuner.trial import ImageClassifier

SENTENCE = r"^[^\n]+, got [^\n]+; [^\n]+[^.]$"  # rule, value, fix
SQUARE = {"size": {"height": 64, "width": 64}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
VIT = {"model_type": "vit", "image_size": 64, "patch_size": 16, "hidden_size": 32, "num_attention_heads": 2}
NESTED = b"[" * 100_000


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("timm:vit_small_patch14_dino", "did you mean 'timm:vit_small_patch14_dinov2'?"),
        ("timm:Resnet-50", "did you mean 'timm:resnet50'?"),
        ("timm:nothing", "for example "),
        ("timm:resnet18.in99", "did you mean 'timm:resnet18'?"),
        ("timm:timm/resnet18", "did you mean 'timm:resnet18'?"),
        ("timm", "for example 'resnet18'"),
        ("hf:", "for example 'hf:facebook/dinov2-small'"),
        ("hf:dinov2-small", "for example 'hf:facebook/dinov2-small'"),
        ("hf:facebook/dinov2-small/main", "for example 'hf:facebook/dinov2-small'"),
        ("hf:timm/resnet18.a1_in1k", "use 'timm:resnet18.a1_in1k'"),
        ("HF:facebook/dinov2-small", "correct what is before the colon"),
        ("https://huggingface.co/facebook/dinov2-small", "correct what is before the colon"),
    ],
)
def test_names_are_refused_by_check(name: str, fix: str, home: Path) -> None:
    with pytest.raises(TunerError, match=SENTENCE.replace("[^.]$", "$")) as caught:
        ImageClassifier("digits", name, weights=None).check(Space({"lr": 0.1}))
    assert f"; {fix}" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "processor", "told"),
    [
        (b"", SQUARE, "config.json of hf:tiny/some must be a JSON object"),
        (b'{"model_type": "vit"', SQUARE, "config.json of hf:tiny/some must be a JSON object"),
        (b'["vit"]', SQUARE, "it holds a list; fetch it again"),
        (NESTED, SQUARE, "config.json of hf:tiny/some must be a JSON object"),
        ({}, SQUARE, "that takes images, got model_type=None; choose"),
        ({"model_type": ["vit"]}, SQUARE, "that takes images, got model_type=['vit']; choose"),
        ({"model_type": "bert", "vocab_size": 9}, SQUARE, "that takes images, got model_type='bert'; choose"),
        (
            VIT | {"model_type": "own", "auto_map": {"AutoModel": "a.B"}},
            SQUARE,
            "model_type='own' with code of its own",
        ),
        (
            {"model_type": "siglip", "vision_config": "vit"},
            SQUARE,
            "that takes images, got model_type='siglip'; choose",
        ),
        (VIT | {"patch_size": 0}, SQUARE, "must bring images to a multiple of the 0 pixels in config.json, got 64; "),
        (VIT | {"patch_size": "16"}, SQUARE, "a multiple of the '16' pixels in config.json, got 64; choose"),
        (VIT | {"patch_size": 24}, SQUARE, "a multiple of the 24 pixels in config.json, got 64; choose"),
        (VIT | {"model_type": "clip", "image_size": 96}, SQUARE, "to the 96 pixels in config.json, got 64; choose"),
        ({"model_type": "pvt", "image_size": 96}, SQUARE, "to the 96 pixels in config.json, got 64; choose"),
        (VIT, {}, "must bring images to one square size by bilinear or bicubic resizing, got KeyError for 'size'"),
        (
            VIT,
            SQUARE | {"size": {"height": 0, "width": 0}},
            "got ValueError for 0, which is too small or too large; choose",
        ),
        (
            VIT,
            SQUARE | {"size": {"shortest_edge": 10**9}},
            "got ValueError for 1000000000, which is too small or too large; choose",
        ),
        (VIT, SQUARE | {"image_std": [0.5, 0.5, 0]}, "got ValueError for 0, which is too small or too large; choose"),
        (VIT, SQUARE | {"image_mean": ["a", "b", "c"]}, "got ValueError for could not convert"),
        (VIT, b"\x00", "preprocessor_config.json of hf:tiny/some must be a JSON object"),
    ],
)
def test_configurations_are_refused_by_check(config: Any, processor: Any, told: str, home: Path) -> None:
    told_files = {"config.json": config, "preprocessor_config.json": processor}
    files = {name: file if isinstance(file, bytes) else json.dumps(file).encode() for name, file in told_files.items()}
    hub_cache.put(home, "tiny/some", files)
    with pytest.raises(TunerError, match=SENTENCE) as caught:
        ImageClassifier("digits", "hf:tiny/some", weights=None).check(Space({"lr": 0.1}))
    assert told in str(caught.value)


@pytest.mark.parametrize("size", [(96, 128), (63,)])
def test_a_size_that_a_swin_transformer_or_clip_cant_take_is_refused_by_check(
    size: tuple[int, ...], home: Path, tmp_path: Path
) -> None:
    put(home, tmp_path, "swin")
    for pixels in size:
        with pytest.raises(
            TunerError, match=rf"^hf:tiny/swin takes images of 64 pixels only, got image_size={pixels}; l"
        ):
            ImageClassifier("digits", "hf:tiny/swin", weights=None).check(Space({"image_size": pixels}))


def test_a_repository_without_a_processor_is_refused_with_its_place(home: Path) -> None:
    folder = hub_cache.put(home, "tiny/some", {"config.json": json.dumps(VIT).encode()})
    with pytest.raises(TunerError) as caught:
        ImageClassifier("digits", "hf:tiny/some", weights=None).check(Space({"lr": 0.1}))
    assert str(caught.value).startswith(f"hf:tiny/some needs {folder}/preprocessor_config.json, which isn't there, and")
    assert str(caught.value).endswith("; copy preprocessor_config.json there, or name another model")


class Evil:
    """What a pickled file may do if it is trusted."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def put_vit(home: Path, tmp_path: Path, weights: dict[str, bytes], **changes: Any) -> None:
    config = transformers.ViTConfig(**{key: value for key, value in VIT.items() if key != "model_type"})
    files = {"config.json": json.dumps(config.to_dict() | changes, default=str).encode()}
    hub_cache.put(home, "tiny/some", files | {"preprocessor_config.json": json.dumps(SQUARE).encode()} | weights)


def saved(tmp_path: Path, labels: int) -> bytes:
    config = transformers.ViTConfig(**{key: value for key, value in VIT.items() if key != "model_type"})
    config.num_labels = labels
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "saved")
    return (tmp_path / "saved" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["empty", "cut off", "text", "of other classes", "pickled", "of another model"])
def test_files_of_weights_are_refused_before_a_trial_learns(kind: str, home: Path, tmp_path: Path) -> None:
    whole = saved(tmp_path, 7)
    state = {"vit.embeddings.cls_token": torch.zeros(1, 1, 32)}
    content = {
        "empty": {"model.safetensors": b""},
        "cut off": {"model.safetensors": whole[: len(whole) // 2]},
        "text": {"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"},
        "of other classes": {"model.safetensors": whole},
        "pickled": {"pytorch_model.bin": pickle.dumps({"a": Evil(tmp_path / "was run")})},
        "of another model": {"pytorch_model.bin": pickle.dumps(state)},
    }[kind]
    put_vit(home, tmp_path, content, id2label={str(number): str(number) for number in range(3)})
    trial = ImageClassifier("digits", "hf:tiny/some", weights="pretrained")
    with pytest.raises(TunerError, match=SENTENCE):
        build_network(trial, channels=3, classes=2, seed=0)
    assert not (tmp_path / "was run").exists()


@pytest.mark.parametrize(
    "changes", [{"hidden_size": -3}, {"hidden_act": "none"}, {"num_hidden_layers": "two"}, {"model_type": "nosuch"}]
)
def test_configurations_of_no_network_are_refused_when_it_is_built(
    changes: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    put_vit(home, tmp_path, {}, **changes)
    trial = ImageClassifier("digits", "hf:tiny/some", weights=None)
    with pytest.raises(
        TunerError,
        match=r"^config.json of hf:tiny/some must describe a model with which transformers ca.*, got [^\n]+; choose",
    ):
        build_network(trial, channels=3, classes=2, seed=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_configuration_in_half_precision_gives_a_network_in_whole_precision(
    family: str, home: Path, tmp_path: Path
) -> None:
    folder = put(home, tmp_path, family)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(told | {"dtype": "float16"}))
    network = build_network(ImageClassifier("digits", f"hf:tiny/{family}", weights=None), channels=3, classes=2, seed=0)
    assert {value.dtype for value in network.module.parameters()} == {torch.float32}
