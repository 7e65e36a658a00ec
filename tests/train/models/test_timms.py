"""timm's models in tuner beside timm's own: the same weights, the same files, the same logits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config

from tests import hub_cache
from tests.train.models.conftest import CLASSES, SIZES
from tuner.errors import StudyError, WeightsError
from tuner.inspection.best import LoadedModel
from tuner.inspection.card import Inputs, ModelCard
from tuner.inspection.shipping.forms import onnx_answers, original_answers, write_onnx
from tuner.space import Space, uniform
from tuner.train.data import Normalisation, load_splits
from tuner.train.evaluation import Evaluator
from tuner.train.memory.estimate import Images, estimate_memory
from tuner.train.models import build_network, depth_rates, head_is_last
from tuner.train.models.stages import find_stages
from tuner.train.speed import measure_trial
from tuner.trial import ImageClassifier

SMALL = (
    "resnet18.a1_in1k",
    "convnext_atto.d2_in1k",
    "test_efficientnet.r160_in1k",
    "test_vit.r160_in1k",
    "mobilenetv3_small_050.lamb_in1k",
)
LARGE = (
    "vit_small_patch14_dinov2.lvd142m",
    "swin_tiny_patch4_window7_224.ms_in1k",
    "vit_base_patch32_siglip_256.v2_webli",
    "convnext_tiny.fb_in22k_ft_in1k_384",  # whose images are squashed
)
EACH_FAMILY = (*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE))


@pytest.mark.parametrize("name", EACH_FAMILY)
def test_logits_are_those_of_timms_own_pipeline(name: str, home: Path, photos: Path) -> None:
    file = hub_cache.put_timms(home, name)
    trial = ImageClassifier(
        data=f"folder:{photos}", model=f"timm:{name.split('.', maxsplit=1)[0]}", weights=name.split(".")[1]
    )
    size = trial.default_image_size
    network = build_network(trial, channels=3, classes=2, seed=0, config={"image_size": size})
    splits = load_splits(trial, seed=0, image_size=None)
    ours = Evaluator(torch.device("cpu")).logits(network.module, splits.train, splits.normalisation)

    theirs = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": str(file)}, num_classes=2).eval()
    theirs.get_classifier().load_state_dict(network.head_layer.state_dict())
    transform = create_transform(**resolve_data_config({}, model=theirs))
    paths = [photos / label / f"{number}.png" for label in CLASSES for number in range(len(SIZES))]
    with torch.inference_mode():
        answers = theirs(torch.stack([transform(Image.open(path)) for path in paths]))
    nearest = (ours[:, None] - answers[None]).abs().amax(2).amin(1)  # the split has another order
    assert size == theirs.pretrained_cfg["input_size"][-1]
    assert network.pretrained
    assert len(ours) == len(splits.train) >= 4
    assert float(nearest.max()) < 1e-4 < float((ours - ours.flip(0)).abs().max())


def stages_of(model: str, tmp_path: Path) -> tuple[list[str], list[int]]:
    """The stages' names, and how many parameters each has."""
    network = build_network(ImageClassifier("digits", model, weights=None), channels=3, classes=2, seed=0)
    stages = find_stages(network.module, network.head, network.layers)
    counted = sorted(name for stage in stages for name in stage.parameters)
    assert counted == sorted(name for name, _ in network.module.named_parameters())
    return [stage.name for stage in stages], [len(stage.parameters) for stage in stages]


def test_each_block_of_a_transformer_is_a_stage(tmp_path: Path) -> None:
    names, counts = stages_of("timm:vit_small_patch14_dinov2", tmp_path)
    assert names == ["cls_token", *(f"blocks.{number}.norm1.weight" for number in range(12)), "head"]
    assert counts == [4, *[14] * 11, 16, 2]  # the last norm belongs to the last block


def test_a_convolutional_network_has_timms_groups(tmp_path: Path) -> None:
    names, _ = stages_of("timm:resnet18", tmp_path)
    assert names[0] == "conv1.weight"
    assert len(names) == 10  # stem, eight blocks, head


def test_positions_are_interpolated_as_timm_does_it(home: Path) -> None:
    file = hub_cache.put_timms(home, "test_vit.r160_in1k")
    trial = ImageClassifier("digits", "timm:test_vit", weights="pretrained")
    network = build_network(trial, channels=3, classes=2, seed=0, config={"image_size": 96})
    theirs = timm.create_model("test_vit", pretrained=True, pretrained_cfg_overlay={"file": str(file)}, img_size=96)
    assert torch.equal(network.module.get_parameter("pos_embed"), theirs.get_parameter("pos_embed"))
    assert network.module(torch.zeros(1, 3, 96, 96)).shape == (1, 2)


def test_grey_images_get_a_stem_and_the_rest_of_the_weights(home: Path) -> None:
    hub_cache.put_timms(home, "test_efficientnet.r160_in1k")
    trial = ImageClassifier("digits", "timm:test_efficientnet", weights="pretrained")
    network = build_network(trial, channels=1, classes=2, seed=0, stem="sum")
    assert network.new == (network.head,)
    assert network.module(torch.zeros(1, 1, 64, 64)).shape == (1, 2)


def test_a_stem_for_other_channels_pads_as_the_librarys(home: Path) -> None:
    trial = ImageClassifier("digits", "timm:tf_efficientnet_lite0", weights=None)
    stems = [
        build_network(trial, channels=channels, classes=2, seed=0).module.get_submodule("conv_stem")
        for channels in (1, 3)
    ]
    grey, colour = (stem(torch.zeros(1, channels, 224, 224)) for stem, channels in zip(stems, (1, 3), strict=True))
    assert grey.shape == colour.shape == (1, 32, 112, 112)


def test_a_backbone_without_a_head_can_be_a_users_file(tmp_path: Path) -> None:
    backbone = timm.create_model("test_vit", num_classes=0)
    torch.save(backbone.state_dict(), tmp_path / "backbone.pth")
    trial = ImageClassifier("digits", "timm:test_vit", weights=tmp_path / "backbone.pth")
    network = build_network(trial, channels=3, classes=2, seed=0)
    assert network.new == ("head",)
    assert torch.equal(network.module.get_parameter("norm.weight"), backbone.get_parameter("norm.weight"))


@pytest.mark.parametrize("name", ["test_vit", "test_convnext", "test_efficientnet", "swin_tiny_patch4_window7_224"])
def test_blocks_are_left_out_as_timm_does_it(name: str) -> None:
    trial = ImageClassifier("digits", f"timm:{name}", weights=None)
    trial.check(Space({"stochastic_depth": uniform(0, 0.4)}))
    network = build_network(trial, channels=3, classes=2, seed=0, config={"stochastic_depth": 0.4})
    theirs = list(depth_rates(timm.create_model(name, drop_path_rate=0.4)).values())
    network.leave_blocks_out(0.4, trial.model_name)
    ours = list(depth_rates(network.module).values())
    assert ours == pytest.approx([0.4 * rate / max(theirs) for rate in theirs])  # EfficientNet's last one has less
    plain = build_network(trial, channels=3, classes=2, seed=0)
    assert plain.module.state_dict().keys() == network.module.state_dict().keys()


def test_a_model_without_stochastic_depth_is_refused_by_check() -> None:
    with pytest.raises(StudyError, match=r"most of timm's; .*, got 'timm:vgg11'; leave it out"):
        ImageClassifier("digits", "timm:vgg11", weights=None).check(Space({"stochastic_depth": 0.1}))
    build_network(
        ImageClassifier("digits", "timm:vgg11", weights=None),
        channels=3,
        classes=2,
        seed=0,
        config={"stochastic_depth": 0.0},
    )


def test_a_damaged_file_of_the_hub_is_named(home: Path) -> None:
    folder = hub_cache.put(home, "timm/test_vit.r160_in1k", {"model.safetensors": b"damaged"})
    trial = ImageClassifier("digits", "timm:test_vit", weights="pretrained")
    with pytest.raises(WeightsError, match=rf"^weights must be a saved state_dict, got {folder}/model.safetensors: "):
        build_network(trial, channels=3, classes=2, seed=0)


@pytest.mark.parametrize("name", SMALL)
def test_each_family_keeps_its_features_and_can_be_written_as_onnx(name: str, home: Path, tmp_path: Path) -> None:
    hub_cache.put_timms(home, name)
    trial = ImageClassifier("digits", f"timm:{name.split('.', maxsplit=1)[0]}", weights="pretrained")
    size = 96
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


@pytest.mark.parametrize("name", ["timm:test_vit", "timm:test_resnet"])
def test_memory_and_speed_are_estimated_before_the_weights_are_here(name: str, home: Path, photos: Path) -> None:
    trial = ImageClassifier(f"folder:{photos}", name, weights=None)
    config = {"batch_size": 4, "lr": 1e-3, "finetune": "gradual"}
    images = Images(3, 160, 160, 2, 6, 1)
    assert (estimate_memory(trial, config, images, epochs=2, device="cpu").peak_bytes or 0) > 10**6
    waiting = replace(trial, weights="pretrained")
    speed = measure_trial(waiting, config, epochs=2, split_seed=0, device="cpu", seconds=0.1)
    assert speed.images_per_second > 1
