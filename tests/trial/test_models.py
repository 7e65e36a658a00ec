import inspect
import json
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import StudyError
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing, Preprocessing
from tuner.trial.models import MEAN, SD, find_model, hub_folder, model_facts


def facts_from_torchvision() -> dict[str, dict[str, Any]]:
    """`libraries/torchvision.json`, made again from torchvision's public API, except for the layers, which need a build."""
    from torchvision import models

    return {name: _facts(name) for name in models.list_models(module=models)}


def _facts(name: str) -> dict[str, Any]:
    from torchvision import models

    weights = models.get_model_weights(name)
    model_class = inspect.signature(models.get_model_builder(name)).return_annotation
    parameters = inspect.signature(model_class.__init__).parameters
    least = weights.DEFAULT.meta["min_size"][0]
    return {
        "default": weights.DEFAULT.name,
        "min_size": least,
        "fixed_size": "image_size" in parameters or "input_size" in parameters,
        "weights": {one.name: _weights(one, least) for one in weights},
    }


def _weights(one: Any, least: int) -> dict[str, Any]:
    """What is as for most weights is left out."""
    preset = one.transforms()
    assert preset.antialias
    assert len(preset.crop_size) == len(preset.resize_size) == 1
    told = {
        "file": one.url.removeprefix("https://download.pytorch.org/models/"),
        "size": preset.crop_size[0],
        "resize": preset.resize_size[0],
    }
    told["interpolation"] = preset.interpolation.value
    if (tuple(preset.mean), tuple(preset.std)) != (MEAN, SD):
        told |= {"mean": preset.mean, "sd": preset.std}
    if one.meta["min_size"][0] != least:
        told["min_size"] = one.meta["min_size"][0]
    return told | ({"licence": one.meta["license"]} if "license" in one.meta else {})


def table(library: str) -> dict[str, Any]:
    text = files("tuner.trial").joinpath("libraries", f"{library}.json").read_text(encoding="utf-8")
    told: dict[str, Any] = json.loads(text)
    return told


def test_the_table_of_torchvision_says_what_the_installed_one_says() -> None:
    shipped = table("torchvision")
    layers = {"stochastic_depth", "batch_norm", "tokens"}
    models = {
        name: {key: value for key, value in row.items() if key not in layers} for name, row in shipped["models"].items()
    }
    assert models == facts_from_torchvision()
    assert shipped["address"] == "https://download.pytorch.org/models/"


def test_each_library_of_models_is_built_and_no_two_have_a_name_in_common() -> None:
    from tuner.train.models.by_name import BUILDERS

    prefixes = {library: f"{library}:" for library in BUILDERS} | {"torchvision": ""}
    names = [prefixes[library] + name for library in BUILDERS for name in table(library)["models"]]
    assert sorted(names) == sorted(model_facts())
    assert len(names) == len(set(names))
    assert {facts.library for facts in model_facts().values()} | {"hf"} == set(BUILDERS)  # the hub's are countless


def test_weights_have_names_and_a_preprocessing_of_their_own() -> None:
    weights = find_model("vit_b_16").find_weights("IMAGENET1K_SWAG_E2E_V1")
    assert weights.preprocessing == Preprocessing(Framing(384, 384, "bicubic"), MEAN, SD)
    assert (weights.min_size, weights.licence[:30]) == (384, "https://github.com/facebookres")
    assert find_model("vit_b_16").find_weights("imagenet").preprocessing.framing == Framing(224, 256, "bilinear")
    assert find_model("efficientnet_v2_l").find_weights("imagenet").preprocessing.mean == (0.5, 0.5, 0.5)


def test_weights_that_a_model_lacks_are_refused_with_those_that_it_has() -> None:
    with pytest.raises(StudyError) as caught:
        find_model("resnet18").find_weights("IMAGENET1K_V2")
    assert str(caught.value) == (
        "weights of resnet18 are imagenet, IMAGENET1K_V1, got 'IMAGENET1K_V2'; choose one, or name the file of a saved "
        "state_dict"
    )


def test_the_hub_folder_is_the_one_of_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    for name, value in ((None, None), ("XDG_CACHE_HOME", str(tmp_path / "xdg")), ("TORCH_HOME", str(tmp_path / "th"))):
        if name is None:
            monkeypatch.delenv("TORCH_HOME", raising=False)
            monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        else:
            monkeypatch.setenv(name, str(value))
        assert str(hub_folder()) == torch.hub.get_dir()


def test_the_weights_of_resnet18_are_looked_for_in_torchs_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert (
        find_model("resnet18").find_weights("imagenet").path
        == tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    )


def test_an_unknown_model_gets_the_nearest_one() -> None:
    with pytest.raises(StudyError) as caught:
        find_model("ResNet-18")
    assert str(caught.value) == (
        "model must be one of torchvision's classification models, got 'ResNet-18'; did you mean 'resnet18'?"
    )


def test_image_sizes_that_a_model_cant_take_are_refused() -> None:
    find_model("resnet18").check_image_size(8)
    with pytest.raises(StudyError, match=r"^vgg11 needs images of at least 32 pixels, got image_size=28; raise"):
        find_model("vgg11").check_image_size(28)
    with pytest.raises(StudyError, match=r"^vit_b_16 takes images of 224 pixels only, got image_size=256; leave"):
        find_model("vit_b_16").check_image_size(256)


def test_a_default_image_size_is_never_less_than_the_model_needs() -> None:
    assert [find_model(name).image_size(28) for name in ("resnet18", "vgg11", "vit_b_16")] == [28, 32, 224]


def test_transformers_of_torchvision_have_the_tokens_of_their_layers() -> None:
    import torch
    from torchvision.models import SwinTransformer, VisionTransformer, get_model

    for name, row in table("torchvision")["models"].items():
        if not name.startswith(("vit", "swin")):
            assert "tokens" not in row
            continue
        with torch.device("meta"):
            module = get_model(name)
        if isinstance(module, VisionTransformer):
            assert row["tokens"] == {"blocks": len(module.encoder.layers), "class_token": True}
        else:
            assert isinstance(module, SwinTransformer)
            assert row["tokens"] == {"blocks": 1}


def test_models_with_stochastic_depth_and_without_batch_norm_are_torchvisions() -> None:
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm
    from torchvision import models
    from torchvision.ops import StochasticDepth

    from tuner.train.models import random_network

    families = {
        re.split(r"[_\d]", name)[0]: name for name in reversed(models.list_models(module=models))
    }  # one of each is enough
    for name in {*families.values(), "vgg11", "vgg11_bn", "swin_t", "swin_v2_t", "efficientnet_v2_s", "maxvit_t"}:
        with torch.device("cpu" if name.startswith("regnet") else "meta"):  # which draws weights by hand
            layers = list(random_network(name, channels=3, classes=2, seed=0).module.modules())
        assert find_model(name).stochastic_depth == any(isinstance(layer, StochasticDepth) for layer in layers), name
        assert find_model(name).batch_norm == any(isinstance(layer, _BatchNorm) for layer in layers), name


def test_the_table_of_timm_says_what_the_installed_one_says() -> None:
    import timm

    from benchmarks.timm_models import HEADER, model_row, weights_of

    shipped = table("timm")
    assert {key: value for key, value in shipped.items() if key != "models"} == HEADER
    names = sorted(shipped["models"])
    assert list(shipped["models"]) == names
    assert set(names) <= set(timm.list_models())
    for name in names:
        weights = shipped["models"][name].get("weights", {})
        edges = {tag: {"min_size": each["min_size"]} for tag, each in weights.items() if "min_size" in each}
        told = {tag: each | edges.get(tag, {}) for tag, each in weights_of(name).items()}
        assert weights == json.loads(json.dumps(told)), name
    for name in ("test_vit", "test_vit2", "test_vit3", "test_vit_relpos", "test_convnext", "test_resnet"):
        assert shipped["models"][name] == json.loads(json.dumps(model_row(name)))


def test_a_model_of_timm_has_its_own_weights_and_preprocessing() -> None:
    facts = find_model("timm:vit_small_patch14_dinov2")
    weights = facts.find_weights("pretrained")
    assert weights == facts.find_weights("imagenet") == facts.find_weights("lvd142m")
    assert weights.repository == "timm/vit_small_patch14_dinov2.lvd142m"
    assert weights.licence == "apache-2.0"
    assert weights.preprocessing == Preprocessing(Framing(518, 518, "bicubic", pillow=True), MEAN, SD)
    squashed = find_model("timm:convnext_tiny.fb_in22k_ft_in1k_384")
    assert squashed.find_weights("pretrained").preprocessing.framing == Framing(384, 384, "bicubic", True, True)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "timm:vit_small_patch14_dino2",
            r"^model must be one of timm's .*; did you mean 'timm:vit_small_patch14_dinov2'\?$",
        ),
        ("timm:", r"got 'timm:'; for example 'timm:vit_small_patch14_dinov2'"),
        (
            "tim:resnet50",
            r"^model must be a name of torchvision's, or start with 'timm:' or 'hf:', got 'tim:resnet50'; correct",
        ),
        (
            "timm:resnet18.in99",
            r"^model must be one of timm's classification models, got 'timm:resnet18.in99'; did you",
        ),
        ("vit_small_patch14_dinov2", r"^model must be one of torchvision's classification models, got 'vit_small"),
        (":resnet18", r"^model must be a name of torchvision's, or start with 'timm:' or 'hf:', got ':resnet18'"),
    ],
)
def test_names_of_no_library_are_refused(name: str, told: str) -> None:
    with pytest.raises(StudyError, match=told):
        find_model(name)


def test_a_transformer_of_timm_takes_images_in_steps_of_its_patches() -> None:
    facts = find_model("timm:vit_small_patch14_dinov2")
    for pixels in (14, 224, 518):
        facts.check_image_size(pixels)
    for pixels, near in ((0, 14), (225, 224), (512, 518)):
        with pytest.raises(StudyError, match=rf"multiple of 14 pixels, got image_size={pixels}; use {near}$"):
            facts.check_image_size(pixels)
    assert (facts.image_size(28), facts.for_images(224).min_size) == (518, 224)


def test_a_library_that_isnt_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])  # nothing can be found that isn't loaded
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(StudyError) as caught:
        ImageClassifier("digits", "timm:resnet18").check_files()
    assert str(caught.value) == (
        "model='timm:resnet18' needs timm, got an installation without it; pip install 'image-tuner[timm]'"
    )
