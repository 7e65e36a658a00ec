"""Images as published weights expect them, held against torchvision's own transforms."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import get_weight

from tuner.train.data import Normalisation
from tuner.train.data.images import read_image, resize
from tuner.trial.framing import Framing
from tuner.trial.models import find_model

LEVEL = 1 / 255 / 0.225  # of a pixel, after normalisation


@pytest.mark.parametrize(
    ("model", "enum", "name"),
    [
        ("resnet18", "ResNet18_Weights", "IMAGENET1K_V1"),
        ("mobilenet_v3_large", "MobileNet_V3_Large_Weights", "IMAGENET1K_V2"),
        ("efficientnet_b0", "EfficientNet_B0_Weights", "IMAGENET1K_V1"),
        ("convnext_tiny", "ConvNeXt_Tiny_Weights", "IMAGENET1K_V1"),
        ("vit_b_16", "ViT_B_16_Weights", "IMAGENET1K_SWAG_E2E_V1"),
        ("efficientnet_v2_l", "EfficientNet_V2_L_Weights", "IMAGENET1K_V1"),
    ],
)
@pytest.mark.parametrize("shape", [(300, 401), (511, 256), (32, 32), (257, 258)])
def test_images_reach_the_network_as_torchvisions_transforms_make_them(
    model: str, enum: str, name: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    rough = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    Image.fromarray(rough).resize(shape[::-1], Image.Resampling.BICUBIC).save(tmp_path / "one.png")
    expected = get_weight(f"{enum}.{name}").transforms()(Image.open(tmp_path / "one.png"))
    preprocessing = find_model(model).find_weights(name).preprocessing
    framed = resize(read_image(tmp_path / "one.png")[None], preprocessing.framing)
    found = Normalisation(preprocessing.mean, preprocessing.sd)(framed)[0]
    assert found.shape == expected.shape
    assert float((found - expected).abs().mean()) < 0.5 * LEVEL
    assert float((found - expected).abs().max()) < 6 * LEVEL


def test_a_strip_is_cut_before_it_is_resized() -> None:
    strip = torch.zeros(1, 3, 1, 20_000, dtype=torch.uint8)
    strip[..., 9_990:10_010] = 255
    assert resize(strip, Framing(224, 256)).float().mean() == 255
    assert resize(strip.transpose(2, 3), Framing(224, 256)).shape == (1, 3, 224, 224)


def test_a_framing_that_is_plain_keeps_the_whole_square() -> None:
    image = torch.arange(5 * 8, dtype=torch.uint8).view(1, 1, 5, 8)
    assert torch.equal(resize(image, Framing(5)), image[..., 1:6])
    assert torch.equal(resize(image, Framing(5)), resize(image, 5))
    assert [Framing(64).key, Framing(224, 256).key, Framing(224, 256, "bicubic").key] == [
        "64",
        "256-224-bilinear",
        "256-224-bicubic",
    ]
