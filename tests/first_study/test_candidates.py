import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import hub_cache
from tests.commands import without_network
from tests.hub_server import hub_server
from tests.torch_server import torch_server
from tuner.errors import StudyError, WeightsError
from tuner.first_study.candidates import ACCURACY, MEGABYTES, described, offer, unreachable
from tuner.trial.models import find_model


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Torch's cache, empty, without a way to torchvision's server: a proxy that isn't there."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    without_network(monkeypatch)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def put(folder: Path, model: str, weights: str) -> None:
    (folder / find_model(model).find_weights(weights).file).touch()


def test_weights_on_this_machine_are_offered_and_the_others_are_named_with_the_reason(here: Path) -> None:
    put(here, "mobilenet_v2", "IMAGENET1K_V1")
    put(here, "resnet18", "imagenet")
    put(here, "resnet34", "imagenet")  # none of the usual ones, but it is here
    found = offer()
    assert [(each.model, each.weights, each.accuracy) for each in found.candidates] == [
        ("resnet34", "imagenet", None),
        ("resnet18", "imagenet", 69.8),
        ("mobilenet_v2", "IMAGENET1K_V1", 71.9),
    ]
    assert {model for model, _ in found.left_out} == MEGABYTES.keys() - {"mobilenet_v2", "resnet18"}
    (why,) = {why for model, why in found.left_out if ":" not in model}
    assert why.startswith(f"no weights in {here}, and download.pytorch.org can't be reached (")
    assert described("resnet50") == "resnet50 (80.9 % on ImageNet, 98 MB)"


def test_default_weights_go_before_older_ones(here: Path) -> None:
    put(here, "mobilenet_v2", "IMAGENET1K_V1")
    put(here, "mobilenet_v2", "IMAGENET1K_V2")
    (found,) = offer(["mobilenet_v2"]).candidates
    assert (found.weights, found.accuracy) == ("imagenet", 72.2)


def test_without_any_weights_it_is_refused_unless_random_ones_are_asked_for(here: Path) -> None:
    with pytest.raises(
        WeightsError,
        match="copy a file of torchvision's there, name a file with its model, such as --models resnet18 --weights FILE, or add --weights none",
    ):
        offer(["resnet18"])
    (found,) = offer(random=True).candidates
    assert (found.model, found.weights) == ("resnet18", None)


def test_an_unknown_model_is_refused(here: Path) -> None:
    with pytest.raises(StudyError, match="did you mean 'resnet18'"):
        offer(["resnet81"])


def test_a_proxy_that_is_not_there_says_why(here: Path) -> None:
    why = unreachable("https://download.pytorch.org/models/")
    assert why is not None
    assert "refused" in why


def test_each_accuracy_and_size_is_the_librarys() -> None:
    import timm
    import torch
    from torchvision.models import get_model_weights

    for model, told in ACCURACY.items():
        if ":" not in model:
            for weights in get_model_weights(model):
                assert told[weights.name] == round(weights.meta["_metrics"]["ImageNet-1K"]["acc@1"], 1)
    for model, megabytes in MEGABYTES.items():
        facts = find_model(model)
        if ":" not in model:
            size = get_model_weights(model)[facts.default].meta["_file_size"]
        else:
            with torch.device("meta"):
                size = 4e-6 * sum(each.numel() for each in timm.create_model(model[5:]).parameters())
        assert megabytes == round(size)
    known = {model: told for model, told in ACCURACY.items() if not model.startswith("hf:")}
    assert all(find_model(model).find_weights(name) for model, told in known.items() for name in told)


def test_weights_that_can_be_had_are_offered_without_being_fetched(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (served := tmp_path / "served").mkdir()
    with torch_server(served, monkeypatch) as asked:
        found = offer(["mobilenet_v2", "resnet18"])
    assert [(each.model, each.weights, each.cached) for each in found.candidates] == [
        ("resnet18", "imagenet", False),
        ("mobilenet_v2", "imagenet", False),
    ]
    assert found.left_out == ()
    assert asked == ["HEAD download.pytorch.org/models/"]
    assert not list(here.iterdir())


@pytest.fixture
def hub(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, empty."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    return tmp_path / "hf"


def test_models_of_timm_are_offered_if_their_weights_are_in_the_hubs_cache(hub: Path) -> None:
    hub_cache.put(hub, "timm/vit_small_patch14_dinov2.lvd142m", {"model.safetensors": b""})
    hub_cache.put(hub, "timm/convnext_tiny.fb_in22k", {"model.safetensors": b""})  # not the default ones
    assert [(each.model, each.weights, each.cached, each.pixels) for each in offer().candidates] == [
        ("timm:convnext_tiny", "fb_in22k", True, None),
        ("timm:vit_small_patch14_dinov2", "imagenet", True, 224),  # its weights' own are 518
    ]
    found = offer(["timm:vit_small_patch14_dinov2", "timm:resnet18"])
    place = hub / "hub/models--timm--resnet18.a1_in1k/snapshots/main"
    ((model, why),) = found.left_out
    assert model == "timm:resnet18"
    assert why.startswith(f"no weights in {place}, and huggingface.co can't be reached (")


PROCESSOR = {
    "size": {"shortest_edge": 256},
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


def test_image_models_in_the_hubs_cache_are_offered_and_other_repositories_are_not(hub: Path) -> None:
    config = json.dumps({"model_type": "dinov2", "patch_size": 14}).encode()
    whole = {"config.json": config, "preprocessor_config.json": json.dumps(PROCESSOR).encode()}
    hub_cache.put(hub, "facebook/dinov2-small", {**whole, "model.safetensors": b""})
    hub_cache.put(hub, "owner/without-weights", whole)
    hub_cache.put(hub, "owner/text", {"config.json": b"{}", "model.safetensors": b""})
    hub_cache.put(hub, "owner/broken", {**whole, "config.json": b"{", "model.safetensors": b""})
    assert [(each.model, each.weights, each.accuracy) for each in offer().candidates] == [
        ("hf:facebook/dinov2-small", "imagenet", 81.1)
    ]


def test_weights_whose_licence_forbids_some_use_are_offered_only_by_name(hub: Path) -> None:
    hub_cache.put(hub, "timm/convnextv2_nano.fcmae_ft_in22k_in1k", {"model.safetensors": b""})
    hub_cache.put(hub, "timm/resnet18.a1_in1k", {"model.safetensors": b""})
    found = offer()
    assert [each.model for each in found.candidates] == ["timm:resnet18"]
    assert dict(found.left_out)["timm:convnextv2_nano"] == (
        "the licence of its weights, cc-by-nc-4.0, may not allow what you want; see it, and use --models"
    )
    assert [each.model for each in offer(["timm:convnextv2_nano"]).candidates] == ["timm:convnextv2_nano"]


def test_without_timm_its_models_are_named_with_what_installs_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(here, "resnet18", "imagenet")
    monkeypatch.setattr("tuner.trial.models.is_installed", lambda module: module != "timm")
    why = {model: why for model, why in offer().left_out if model.startswith("timm:")}
    assert set(why.values()) == {"pip install 'image-tuner[timm]'"}
    assert why.keys() == {model for model in MEGABYTES if model.startswith("timm:")}


def test_the_hub_is_asked_where_its_library_asks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With HF_ENDPOINT, as for a mirror, in a process of its own: the library reads it when it is loaded."""
    code = "from tuner.first_study.candidates import offer; print(offer(['timm:resnet18']).candidates[0].cached)"
    with hub_server(tmp_path) as hub:
        environment = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HUB_CACHE": str(tmp_path / "hf")}
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert (found.stdout, hub.asked) == ("False\n", ["HEAD /"])
