"""Layers that onnxruntime computes."""

import pytest
import torch
from torch import Tensor, nn

from tuner.train.models import answering_network, onnx_layers, random_network
from tuner.train.models.onnx_layers import OnnxLayers, by_onnxruntime, layers_of, pays, quickened
from tuner.trial import ImageClassifier

WORTH = 10**6  # images


def backbone(model: str) -> nn.Module:
    """A library's model without its last layer, whose batch normalisations have seen something."""
    network = random_network(model, channels=3, classes=5, seed=0)
    network.module.train()(torch.randn(8, 3, 64, 64) * 2 + 1)
    network.module.set_submodule(network.head, nn.Identity())
    return network.module.eval()


@pytest.mark.parametrize("model", ["mobilenet_v2", "resnet18", "timm:tf_efficientnet_lite0", "convnext_tiny"])
def test_outputs_are_those_of_torch_for_any_number_of_images(model: str) -> None:
    module, images = backbone(model), torch.randn(7, 3, 64, 64)
    layers = by_onnxruntime(module, images)
    assert isinstance(layers, OnnxLayers)
    for count in (1, 2, 7):
        with torch.inference_mode():
            expected = module(images[:count])
        torch.testing.assert_close(layers(images[:count]), expected, rtol=1e-4, atol=1e-4)


class Doubled(nn.Module):
    """Something that recording one pass doesn't show: what is done with more images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 2, 3), nn.Conv2d(2, 3, 3), nn.Linear(3 * 4 * 4, 4)

    def forward(self, images: Tensor) -> Tensor:
        """Outputs [N, 4]."""
        found: Tensor = self.last(self.second(self.first(images)).flatten(1))
        return found * 2 if len(images) > 2 else found


class Unknown(Doubled):
    """It can't be written."""

    def forward(self, images: Tensor) -> Tensor:
        """Outputs [N, 4]."""
        return torch.special.bessel_j0(super().forward(images))


@pytest.mark.parametrize("kind", [Doubled, Unknown])
def test_layers_that_give_something_else_or_cant_be_written_are_left_to_torch(kind: type[Doubled]) -> None:
    module, images = kind(), torch.randn(4, 3, 8, 8)
    assert by_onnxruntime(module, images) is None
    with quickened(module, images, count=WORTH):
        assert layers_of(module) is None


def test_few_images_other_devices_half_precision_and_transformers_are_left_to_torch() -> None:
    cpu, resnet = torch.device("cpu"), random_network("resnet18", channels=3, classes=5, seed=0).module
    assert pays(resnet, 100, 224, cpu)
    assert pays(resnet, 100, 224, cpu, "tf32")
    assert not pays(resnet, 99, 224, cpu)
    assert not pays(resnet, 100, 224, cpu, "bf16")
    assert not pays(resnet, WORTH, 224, torch.device("cuda"))
    assert not pays(random_network("vit_b_16", channels=3, classes=5, seed=0).module, WORTH, 224, cpu)


@pytest.mark.parametrize("library", ["onnx", "onnxruntime"])
def test_without_the_libraries_torch_computes_everything(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resnet = random_network("resnet18", channels=3, classes=5, seed=0).module
    monkeypatch.setattr(onnx_layers, "is_installed", lambda name: name != library)
    assert not pays(resnet, WORTH, 224, torch.device("cpu"))


@pytest.mark.parametrize("flips", [False, True])
def test_a_network_answers_by_onnxruntime_within_the_block_alone(flips: bool) -> None:
    trial = ImageClassifier("digits", "mobilenet_v2", None)
    config = trial.hyperparameters({"test_time_flip": flips})
    network = answering_network(trial, channels=3, outputs=5, config=config).eval()
    images = torch.randn(4, 3, 64, 64)
    with torch.inference_mode():
        expected = network(images)
        with quickened(network, images, count=WORTH):
            assert layers_of(network) is not None
            torch.testing.assert_close(network(images), expected, rtol=1e-4, atol=1e-4)
        assert layers_of(network) is None
        assert network(images).equal(expected)
        with quickened(network, images, count=3):
            assert layers_of(network) is None
