"""What the head of a transformer sees, beside the libraries' own blocks and norms on the same weights and images."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torchvision.models import VisionTransformer as TorchvisionTransformer

from tests import hub_cache
from tuner.errors import StudyError
from tuner.inspection.best import LoadedModel
from tuner.inspection.card import Inputs, ModelCard
from tuner.inspection.shipping.forms import onnx_answers, original_answers, write_onnx
from tuner.train.checkpoint_size import checkpoint_bytes
from tuner.train.data import Normalisation
from tuner.train.fine_tuning import FineTuning
from tuner.train.memory.estimate import Images, estimate_memory
from tuner.train.models import Network, build_network, empty_network, head_is_last
from tuner.train.models.by_name import BUILDERS
from tuner.train.models.heads import fit_head
from tuner.train.models.hubs import HubNetwork
from tuner.train.models.stages import find_stages
from tuner.trial import ImageClassifier
from tuner.trial.pooling import POOLINGS, Pooling

EDGE, DEPTH = 32, 6
TINY: dict[str, Any] = {"img_size": EDGE, "patch_size": 8, "embed_dim": 16, "depth": DEPTH, "num_heads": 2}
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
OF_VISION = {**SMALL, "image_size": EDGE, "patch_size": 8}
PATCHES = 16
Joined = Callable[[str, int], Tensor]


def shaken(module: Any) -> Any:
    """The module in evaluation mode, no norm or token of which is as it was at first."""
    torch.manual_seed(1)
    with torch.no_grad():
        for value in module.parameters():
            value.add_(0.1 * torch.randn_like(value))
    return module.eval()


def images(count: int = 3, edge: int = EDGE) -> Tensor:
    return torch.rand(count, 3, edge, edge, generator=torch.Generator().manual_seed(0))


def seen_by(module: nn.Module, head: str, inputs: Tensor) -> Tensor:
    """The head's input."""
    seen: list[Tensor] = []
    hook = module.get_submodule(head).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.inference_mode():
        module(inputs)
    hook.remove()
    return seen[0]


def after_blocks(module: nn.Module, blocks: Any, inputs: Tensor) -> list[Tensor]:
    """The output of each block."""
    outputs: list[Tensor] = []
    hooks = [
        block.register_forward_hook(
            lambda *given: outputs.append(given[2][0] if isinstance(given[2], tuple) else given[2])
        )
        for block in blocks
    ]
    with torch.inference_mode():
        module(inputs)
    for hook in hooks:
        hook.remove()
    return outputs


def joined(outputs: list[Tensor], kind: str, blocks: int, after: Callable[[Tensor], Tensor]) -> Tensor:
    """DINOv2's `create_linear_input`, written again: of each of the last blocks the class token, and patches' means."""
    last = outputs[-blocks:]
    tokens, means = [after(each[:, 0]) for each in last], [after(each[:, -PATCHES:].mean(1)) for each in last]
    return torch.cat({"token": tokens, "mean": means, "token+mean": [*tokens, means[-1]]}[kind], 1)


TIMMS: dict[str, Callable[[], Any]] = {
    "vit": lambda: VisionTransformer(**TINY, num_classes=3),
    "registers": lambda: VisionTransformer(**TINY, num_classes=3, reg_tokens=4),
    "norm after the mean": lambda: VisionTransformer(**TINY, num_classes=3, global_pool="avg"),
    "attention pooling": lambda: VisionTransformer(**TINY, num_classes=3, global_pool="map"),
    "eva": lambda: Eva(**TINY, num_classes=3, num_reg_tokens=4, use_rot_pos_emb=True),
    "beit": lambda: Beit(**TINY, num_classes=3),
}


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("kind", POOLINGS)
@pytest.mark.parametrize("family", TIMMS)
def test_timms_heads_see_what_its_blocks_and_norms_give(family: str, kind: str, blocks: int) -> None:
    module = shaken(TIMMS[family]())
    with torch.inference_mode():
        each = [module.norm(output) for output in after_blocks(module, module.blocks, images())]
        expected = joined(each, kind, blocks, module.fc_norm)
    fit_head(module, "head", BUILDERS["timm"].tokens, Pooling(kind, blocks))
    assert float((seen_by(module, "head", images()) - expected).abs().max()) < 1e-5


@pytest.mark.parametrize(
    ("family", "kind"), [("vit", "token"), ("registers", "token"), ("norm after the mean", "mean")]
)
def test_the_pooling_that_timm_itself_does_gives_the_same_head_the_same_input(family: str, kind: str) -> None:
    module = shaken(TIMMS[family]())
    own = seen_by(module, "head", images())
    fit_head(module, "head", BUILDERS["timm"].tokens, Pooling(kind))
    assert torch.allclose(seen_by(module, "head", images()), own, atol=1e-6)


HUBS: dict[str, Any] = {
    "vit": transformers.ViTConfig(**OF_VISION),
    "dinov2": transformers.Dinov2Config(**OF_VISION),
    "dinov2_with_registers": transformers.Dinov2WithRegistersConfig(**OF_VISION, num_register_tokens=4),
    "beit": transformers.BeitConfig(**OF_VISION),
    "siglip": transformers.SiglipConfig(vision_config=OF_VISION, text_config=SMALL),
    "ijepa": transformers.IJepaConfig(**OF_VISION),
}
OWN = {"vit": "token", "dinov2": "token+mean", "dinov2_with_registers": "token+mean", "beit": "mean", "siglip": "mean"}


def hubs(family: str) -> Any:
    return shaken(HubNetwork(transformers.AutoModelForImageClassification.from_config(HUBS[family])))


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("kind", POOLINGS)
@pytest.mark.parametrize("family", HUBS)
def test_the_hubs_heads_see_what_its_layers_and_norms_give(family: str, kind: str, blocks: int) -> None:
    if family in ("siglip", "ijepa") and kind != "mean":
        pytest.skip("it has no class token")
    module = hubs(family)
    backbone = module.model.vision_model if family == "siglip" else module.model.base_model
    layers = max((each for each in module.modules() if isinstance(each, nn.ModuleList)), key=len)
    norm = backbone.post_layernorm if family == "siglip" else backbone.layernorm
    after = backbone.pooler.layernorm if family == "beit" else nn.Identity()
    with torch.inference_mode():
        outputs = after_blocks(module, layers, images())
        expected = joined([norm(output) for output in outputs], kind, blocks, after)
    fit_head(module, "model.classifier", BUILDERS["hf"].tokens, Pooling(kind, blocks))
    assert float((seen_by(module, "model.classifier", images()) - expected).abs().max()) < 1e-5


@pytest.mark.parametrize("family", OWN)
def test_the_pooling_that_transformers_itself_does_gives_the_same_head_the_same_input(family: str) -> None:
    module = hubs(family)
    own = seen_by(module, "model.classifier", images())
    fit_head(module, "model.classifier", BUILDERS["hf"].tokens, Pooling(OWN[family]))
    assert torch.allclose(seen_by(module, "model.classifier", images()), own, atol=1e-6)


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("kind", POOLINGS)
def test_torchvisions_heads_see_what_its_layers_and_norm_give(kind: str, blocks: int) -> None:
    module = shaken(TorchvisionTransformer(EDGE, 8, DEPTH, 2, 16, 32, num_classes=3))
    own = seen_by(module, "heads.head", images())
    with torch.inference_mode():
        each = [module.encoder.ln(output) for output in after_blocks(module, module.encoder.layers, images())]
    fit_head(module, "heads.head", BUILDERS["torchvision"].tokens, Pooling(kind, blocks))
    seen = seen_by(module, "heads.head", images())
    assert float((seen - joined(each, kind, blocks, nn.Identity())).abs().max()) < 1e-5
    assert torch.equal(seen, own) == (kind == "token" and blocks == 1)


def built(model: str = "timm:test_vit", weights: str | Path | None = None, **chosen: Any) -> Network:
    trial = ImageClassifier("digits", model, weights=weights)
    return build_network(trial, channels=3, classes=5, seed=0, config={"image_size": 32, **chosen})


def test_weights_have_the_names_that_they_have_without_pooling(home: Path) -> None:
    file = hub_cache.put_timms(home, "test_vit.r160_in1k")
    plain, pooled = built(weights="pretrained"), built(weights="pretrained", pooling="token+mean", blocks=4)
    assert pooled.head_layer.weight.shape == (5, 5 * 64)
    assert pooled.new == ("head",)
    assert pooled.layers == plain.layers
    left, right = plain.module.state_dict(), pooled.module.state_dict()
    assert list(left) == list(right)
    assert all(torch.equal(left[name], right[name]) for name in left if not name.startswith("head."))
    theirs = timm.create_model("test_vit", pretrained=True, pretrained_cfg_overlay={"file": str(file)}, img_size=32)
    assert torch.equal(right["blocks.5.mlp.fc2.weight"], theirs.state_dict()["blocks.5.mlp.fc2.weight"])


def test_a_users_file_is_taken_whole_only_for_the_same_pooling(tmp_path: Path) -> None:
    saved = built(pooling="token", blocks=4)
    save_file(saved.module.state_dict(), tmp_path / "model.safetensors")
    again = built(weights=tmp_path / "model.safetensors", pooling="token", blocks=4)
    assert again.new == again.notes == ()
    assert torch.equal(again.head_layer.weight, saved.head_layer.weight)
    other = built(weights=tmp_path / "model.safetensors")
    assert other.new == ("head",)
    assert other.notes == (f"the last layer is new: it has {other.head_layer.out_features} classes",)
    assert torch.equal(other.module.get_parameter("norm.weight"), saved.module.get_parameter("norm.weight"))


def test_groups_of_layers_stay_and_only_the_head_is_new() -> None:
    plain, pooled = built(), built(pooling="mean", blocks=4)
    stages, others = (find_stages(each.module, each.head, each.layers) for each in (plain, pooled))
    assert stages == others
    tuning = FineTuning(pooled, {**HEAD_ONLY, "finetune": "gradual", "layer_decay": 0.5}, epochs=9)
    rates = {id(value): share for value, share in tuning.open(3)}
    assert rates[id(pooled.head_layer.weight)] == 1
    assert rates[id(pooled.module.get_parameter("blocks.5.attn.qkv.weight"))] == 0.5
    assert rates[id(pooled.module.get_parameter("blocks.4.attn.qkv.weight"))] == 0.25


HEAD_ONLY = {
    **{"unfreeze_every": 1, "probe_epochs": None, "freeze_batch_norm": False, "backbone_lr_scale": 1.0},
    "finetune": "head",
}


@pytest.mark.parametrize(
    ("model", "blocks"), [("timm:test_vit", 4), ("hf:tiny/dinov2", 4), ("vit_b_32", 1), ("timm:test_vit", 1)]
)
def test_a_pooled_network_can_be_copied_freed_of_its_head_and_written_as_onnx(
    model: str, blocks: int, home: Path, tmp_path: Path
) -> None:
    if model.startswith("hf:"):
        config = transformers.Dinov2Config(**OF_VISION)
        processor = transformers.BitImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
        hub_cache.put_saved(
            home, "tiny/dinov2", tmp_path / "saved", transformers.AutoModel.from_config(config), processor
        )
    size = 224 if model == "vit_b_32" else 48
    network = built(model, pooling="token+mean", blocks=blocks, image_size=size)
    inputs = images(edge=size)
    assert head_is_last(network.module, inputs)
    copied = copy.deepcopy(network.module)
    with torch.inference_mode():
        before = network.module(inputs)
        for value in network.module.parameters():
            value.zero_()
        assert torch.equal(copied(inputs), before)
        assert not before.eq(network.module(inputs)).any()
    card = ModelCard(model, "digits", "none", tuple("abcde"), Inputs(3, size, Normalisation((0.5,) * 3, (0.25,) * 3)))
    loaded = LoadedModel(copied, card, torch.device("cpu"))
    write_onnx(loaded, tmp_path / "model.onnx")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, size, size), dtype=np.uint8)
    apart = onnx_answers(tmp_path / "model.onnx")(pixels) - original_answers(loaded)(pixels)
    assert float(np.abs(apart).max()) < 1e-3


def test_estimates_know_the_heads_width() -> None:
    trial = ImageClassifier("digits", "timm:test_vit", weights=None)
    config = {"batch_size": 4, "finetune": "head", "optimizer": "sgd", "momentum": 0.0, "image_size": 32}
    wide = {**config, "pooling": "token+mean", "blocks": 4}
    sizes = [
        estimate_memory(trial, each, Images(3, 32, 32, 2, 1000, 0), epochs=2, device="cuda").peak_bytes or 0
        for each in (config, wide)
    ]
    assert sizes[1] - sizes[0] >= 4 * 4 * 64 * 1000  # features of 1000 images, whose vectors are five times as wide
    small, large = (checkpoint_bytes(trial, [each], epochs=2, channels=3, classes=1000)[0] for each in (config, wide))
    assert large - small == 4 * 4 * 64 * 1000
    assert checkpoint_bytes(trial, [config, wide], epochs=2, channels=3, classes=1000)[0] == large


def test_a_hierarchical_transformers_own_head_sees_the_mean(home: Path) -> None:
    trial = ImageClassifier("digits", "swin_t", weights=None)
    plain, pooled = (empty_network(trial, channels=3, classes=2, config=each) for each in ({}, {"pooling": "mean"}))
    assert type(plain.module) is type(pooled.module)
    with pytest.raises(
        StudyError, match=r"^pooling='token' needs a model with a class token, got swin_t, which only has"
    ):
        empty_network(trial, channels=3, classes=2, config={"pooling": "token"})
