import pytest
import torch
import torchvision
from torch import Tensor, nn

from tuner.inspection.saliency import has_maps, last_block, overlay, saliency
from tuner.train.models import random_network
from tuner.trial.models import find_model

CPU = torch.device("cpu")


class Corner(nn.Module):
    """Says class 1 by how bright the left upper quarter is, class 0 by the whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(1, 2, 1, bias=False)
        nn.init.ones_(self.features.weight)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.features(images)
        return torch.stack([maps[:, 0].mean((1, 2)), maps[:, 1].mean((1, 2))], 1)


def test_the_map_is_high_where_what_the_answer_came_from_is() -> None:
    images = torch.zeros(2, 1, 8, 8)
    images[0, :, :4, :4] = 1.0
    images[1, :, 6:, 6:] = 1.0
    found = saliency(Corner().eval(), images, torch.tensor([1, 0]), lambda shown: shown, CPU)
    assert found is not None
    assert found.shape == (2, 8, 8)
    assert torch.equal(found, images[:, 0])


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "squeezenet1_1"])
@pytest.mark.parametrize("size", [28, 64])
def test_convolutional_models_have_maps_of_the_images_size(name: str, size: int) -> None:
    module = random_network(name, channels=3, classes=4, seed=0).module.eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    images = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    found = saliency(module, images, torch.tensor([0, 1, 2]), lambda shown: shown, CPU)
    assert found is not None
    assert found.shape == (3, size, size)
    assert 0 <= found.min() <= found.max() <= 1
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert not any(part._forward_hooks for part in module.modules())


def test_the_last_block_of_a_resnet_is_the_deepest_that_still_has_places() -> None:
    module = torchvision.models.resnet18(weights=None).eval()
    assert last_block(module, torch.zeros(1, 3, 224, 224)) is module.layer4
    assert last_block(module, torch.zeros(1, 3, 64, 64)) is module.layer3


def test_models_without_maps_have_none() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    assert saliency(flat, torch.zeros(1, 1, 8, 8), torch.tensor([0]), lambda shown: shown, CPU) is None
    assert has_maps(find_model("timm:resnet18"))
    assert not has_maps(find_model("timm:vit_small_patch14_dinov2"))
    assert [has_maps(find_model(name)) for name in ("resnet18", "vit_b_16", "swin_t", "convnext_tiny")] == [
        True,
        False,
        False,
        True,
    ]


def test_an_overlay_is_bright_where_the_map_is_high_on_any_image() -> None:
    place_map = torch.tensor([[0.0, 1.0]])
    for image in (torch.zeros(1, 1, 2, dtype=torch.uint8), torch.full((3, 1, 2), 255, dtype=torch.uint8)):
        shown = overlay(image, place_map)
        assert shown.shape == (3, 1, 2)
        assert shown[:, 0, 1].mean() > shown[:, 0, 0].mean() + 0.3
