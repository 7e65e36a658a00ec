"""The hub's models in tuner beside transformers' own pipeline: the same weights, the same files, the same logits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

from tests import hub_cache
from tuner.errors import StudyError, WeightsError
from tuner.inspection.best import LoadedModel
from tuner.inspection.card import Inputs, ModelCard
from tuner.inspection.shipping.forms import onnx_answers, original_answers, write_onnx
from tuner.space import Space, uniform
from tuner.train.data import Normalisation, load_splits
from tuner.train.evaluation import Evaluator
from tuner.train.models import build_network, depth_rates, head_is_last
from tuner.train.models.stages import find_stages
from tuner.trial import ImageClassifier

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
FAMILIES: dict[str, tuple[Any, Any]] = {
    "dinov2": (
        transformers.Dinov2Config(**SMALL, image_size=112, patch_size=14),
        transformers.BitImageProcessor(size={"shortest_edge": 80}, crop_size={"height": 70, "width": 70}),
    ),
    "vit": (
        transformers.ViTConfig(**SMALL, image_size=64, patch_size=16),
        transformers.ViTImageProcessor(size={"height": 64, "width": 64}),
    ),
    "convnext": (
        transformers.ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1]),
        transformers.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.875),
    ),
    "resnet": (
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
        transformers.ConvNextImageProcessor(size={"shortest_edge": 384}, crop_pct=0.875),
    ),
    "siglip": (
        transformers.SiglipConfig(vision_config={**SMALL, "image_size": 64, "patch_size": 16}, text_config=SMALL),
        transformers.SiglipImageProcessor(size={"height": 64, "width": 64}),
    ),
    "swin": (
        transformers.SwinConfig(image_size=64, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4),
        transformers.ViTImageProcessor(size={"height": 64, "width": 64}),
    ),
}

PROCESSOR = b'{"size": {"height": 64, "width": 64}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'


def put(home: Path, tmp_path: Path, family: str, commit: str = hub_cache.COMMIT) -> Path:
    """A repository of the family's tiny model, without a head as backbones are published; its folder."""
    config, processor = FAMILIES[family]
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.1 * torch.rand_like(value) * (value.ndim == 1))
    return hub_cache.put_saved(home, f"tiny/{family}", tmp_path / f"saved-{commit}", model, processor, commit=commit)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers_own_pipeline(family: str, home: Path, photos: Path, tmp_path: Path) -> None:
    folder = put(home, tmp_path, family)
    trial = ImageClassifier(f"folder:{photos}", f"hf:tiny/{family}", weights="pretrained")
    network = build_network(trial, channels=3, classes=2, seed=0, config=trial.hyperparameters({}))
    splits = load_splits(trial, seed=0, image_size=None)
    ours = Evaluator(torch.device("cpu")).logits(network.module, splits.train, splits.normalisation)

    theirs = transformers.AutoModelForImageClassification.from_pretrained(folder, num_labels=2).eval()
    theirs.get_submodule(network.head.removeprefix("model.")).load_state_dict(network.head_layer.state_dict())
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    images = [Image.open(path).convert("RGB") for path in sorted(photos.rglob("*.png"))]
    with torch.inference_mode():
        answers = theirs(**processor(images, return_tensors="pt")).logits
    nearest = (ours[:, None] - answers[None]).abs().amax(2).amin(1)  # the split has another order
    assert network.pretrained
    assert float(nearest.max()) < 1e-4 < float((ours - ours.flip(0)).abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_keeps_its_features_and_can_be_written_as_onnx(family: str, home: Path, tmp_path: Path) -> None:
    put(home, tmp_path, family)
    trial = ImageClassifier("digits", f"hf:tiny/{family}", weights="pretrained")
    size = 64 if trial.model_facts.step is None else 3 * trial.model_facts.step  # positions are interpolated
    network = build_network(trial, channels=3, classes=5, seed=0, config={"image_size": size})
    images = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    assert head_is_last(network.module, images)
    inputs = Inputs(3, size, Normalisation((0.5,) * 3, (0.25,) * 3))
    card = ModelCard(trial.model_name, "digits", "pretrained", tuple("abcde"), inputs)
    loaded = LoadedModel(network.module.eval(), card, torch.device("cpu"))
    write_onnx(loaded, tmp_path / "model.onnx")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, size, size), dtype=np.uint8)
    apart = onnx_answers(tmp_path / "model.onnx")(pixels) - original_answers(loaded)(pixels)
    assert float(np.abs(apart).max()) < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_grey_images_get_a_stem_of_their_own(family: str, home: Path, tmp_path: Path) -> None:
    put(home, tmp_path, family)
    trial = ImageClassifier("digits", f"hf:tiny/{family}", weights="pretrained")
    network = build_network(trial, channels=1, classes=2, seed=0, stem="sum")
    size = trial.model_facts.min_size
    assert network.new == (network.head,)
    assert network.module(torch.zeros(2, 1, size, size)).shape == (2, 2)


@pytest.mark.parametrize("family", ["dinov2", "convnext", "swin"])
def test_blocks_are_left_out_as_transformers_does_it(family: str, home: Path, tmp_path: Path) -> None:
    put(home, tmp_path, family)
    trial = ImageClassifier("digits", f"hf:tiny/{family}", weights="pretrained")
    trial.check(Space({"stochastic_depth": uniform(0, 0.4)}))
    network = build_network(trial, channels=3, classes=2, seed=0, config={"stochastic_depth": 0.4})
    network.leave_blocks_out(0.4, trial.model_name)
    config = FAMILIES[family][0].__class__(**FAMILIES[family][0].to_dict() | {"drop_path_rate": 0.4})
    theirs = transformers.AutoModelForImageClassification.from_config(config)
    assert list(depth_rates(network.module).values()) == pytest.approx(list(depth_rates(theirs).values()))
    assert max(depth_rates(network.module).values()) == pytest.approx(0.4)
    plain = build_network(trial, channels=3, classes=2, seed=0)
    assert plain.module.state_dict().keys() == network.module.state_dict().keys()


def test_a_model_without_stochastic_depth_is_refused(home: Path, tmp_path: Path) -> None:
    put(home, tmp_path, "vit")
    with pytest.raises(StudyError, match=r"on the hub those with drop_path_rate\), got 'hf:tiny/vit'; leave it out"):
        ImageClassifier("digits", "hf:tiny/vit", weights=None).check(Space({"stochastic_depth": 0.1}))


def test_the_blocks_of_a_transformer_are_stages(home: Path, tmp_path: Path) -> None:
    put(home, tmp_path, "dinov2")
    network = build_network(ImageClassifier("digits", "hf:tiny/dinov2"), channels=3, classes=2, seed=0)
    stages = find_stages(network.module, network.head, network.layers)
    assert [stage.modules for stage in stages[1:]] == [
        ("model.dinov2.encoder.layer.0",),
        ("model.dinov2.encoder.layer.1", "model.dinov2.layernorm"),
        ("model.classifier",),
    ]
    counted = sorted(name for stage in stages for name in stage.parameters)
    assert counted == sorted(name for name, _ in network.module.named_parameters())


def test_weights_that_lack_a_layer_or_are_damaged_are_refused(home: Path, tmp_path: Path) -> None:
    folder = put(home, tmp_path, "vit")
    trial = ImageClassifier("digits", "hf:tiny/vit", weights="pretrained")
    file = (folder / "model.safetensors").resolve()
    state = load_file(file)
    save_file({name: value for name, value in state.items() if "layernorm" not in name}, file, {"format": "pt"})
    with pytest.raises(WeightsError, match=r"^weights must be a saved state_dict, got .*/model.safetensors: it lacks"):
        build_network(trial, channels=3, classes=2, seed=0)
    file.write_bytes(b"damaged")
    with pytest.raises(WeightsError, match=r"^weights must be a saved state_dict, got .*/model.safetensors: "):
        build_network(trial, channels=3, classes=2, seed=0)


def test_a_model_that_classifies_no_images_is_refused(home: Path) -> None:
    files = {"config.json": b'{"model_type": "bert"}', "preprocessor_config.json": PROCESSOR}
    hub_cache.put(home, "tiny/text", files)
    with pytest.raises(StudyError, match=r"takes images, got model_type='bert'; choose another model$"):
        build_network(ImageClassifier("digits", "hf:tiny/text", weights=None), channels=3, classes=2, seed=0)
