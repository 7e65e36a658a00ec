import inspect
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import StudyError
from tuner.trial.models import find_model, hub_folder, model_facts


def facts_from_torchvision() -> dict[str, dict[str, Any]]:
    """`models.json`, made anew from torchvision's public API."""
    from torchvision import models

    return {name: _facts(name) for name in models.list_models(module=models)}


def _facts(name: str) -> dict[str, Any]:
    from torchvision import models

    weights = models.get_model_weights(name).DEFAULT
    model_class = inspect.signature(models.get_model_builder(name)).return_annotation
    parameters = inspect.signature(model_class.__init__).parameters
    return {
        "weights": weights.url.rsplit("/", 1)[1],
        "min_size": weights.meta["min_size"][0],
        "fixed_size": "image_size" in parameters or "input_size" in parameters,
    }


def test_models_json_says_what_the_installed_torchvision_says() -> None:
    shipped = {
        name: {"weights": facts.weights, "min_size": facts.min_size, "fixed_size": facts.fixed_size}
        for name, facts in model_facts().items()
    }
    assert shipped == facts_from_torchvision()


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
    assert find_model("resnet18").weights_path == tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"


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
