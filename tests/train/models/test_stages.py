import pytest
import torch
from torch import nn

from tuner.train.models import random_network
from tuner.train.models.stages import find_stages
from tuner.trial.models import find_model, model_facts


def stages_of(name: str) -> list[str]:
    with torch.device("meta"):
        network = random_network(name, channels=3, classes=7, seed=0)
    return ["+".join(stage.modules) for stage in find_stages(network.module, network.head)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", ["conv1+bn1", "layer1", "layer2", "layer3", "layer4", "fc"]),
        ("resnet50", ["conv1+bn1", "layer1", "layer2", "layer3", "layer4", "fc"]),
        ("efficientnet_b0", [*(f"features.{index}" for index in range(9)), "classifier.1"]),
        ("convnext_tiny", [*(f"features.{index}" for index in range(7)), "features.7+classifier.0", "classifier.2"]),
        ("mobilenet_v3_small", [*(f"features.{index}" for index in range(13)), "classifier.0", "classifier.3"]),
        (
            "vit_b_16",
            [
                "conv_proj",
                *(f"encoder.layers.encoder_layer_{index}" for index in range(11)),
                "encoder.layers.encoder_layer_11+encoder.ln",
                "heads.head",
            ],
        ),
        (
            "densenet121",
            [
                "features.conv0+features.norm0",
                *(f"features.{kind}{index}" for index in (1, 2, 3) for kind in ("denseblock", "transition")),
                "features.denseblock4+features.norm5",
                "classifier",
            ],
        ),
        (
            "vgg11",
            [
                *(f"features.{index}" for index in (0, 3, 6, 8, 11, 13, 16, 18)),
                *(f"classifier.{index}" for index in (0, 3, 6)),
            ],
        ),
        ("shufflenet_v2_x0_5", ["conv1", "stage2", "stage3", "stage4", "conv5", "fc"]),
    ],
)
def test_families_have_the_stages_that_one_would_name(name: str, expected: list[str]) -> None:
    assert stages_of(name) == expected


@pytest.mark.slow
def test_every_parameter_of_every_model_is_in_one_stage_and_the_head_alone_in_the_last() -> None:
    for name in model_facts():
        if name.startswith("regnet"):  # they can't be built without memory
            continue
        with torch.device("meta"):
            network = random_network(name, channels=3, classes=7, seed=0)
        stages = find_stages(network.module, network.head)
        names = [parameter for stage in stages for parameter in stage.parameters]
        assert sorted(names) == sorted(parameter for parameter, _ in network.module.named_parameters()), name
        assert stages[-1].modules == (network.head,), name
        assert {parameter.rpartition(".")[0] for parameter in stages[-1].parameters} == {network.head}, name
        assert len(stages) > 4, name


@pytest.mark.parametrize(
    "name",
    ["resnet18", "efficientnet_b0", "mobilenet_v3_small", "densenet121", "squeezenet1_1", "shufflenet_v2_x0_5"],
)
def test_stages_are_in_the_order_in_which_images_reach_them(name: str) -> None:
    network = random_network(name, channels=3, classes=7, seed=0)
    stages, reached = find_stages(network.module, network.head), []
    for index, stage in enumerate(stages):
        for module in stage.modules:
            network.module.get_submodule(module).register_forward_pre_hook(
                lambda *_, index=index: reached.append(index)
            )
    pixels = find_model(name).image_size(32)
    network.module.eval()(torch.zeros(1, 3, pixels, pixels))
    assert sorted(reached) == reached
    assert set(reached) == set(range(len(stages)))


def test_regnets_too() -> None:
    network = random_network("regnet_y_400mf", channels=3, classes=7, seed=0)
    assert [stage.name for stage in find_stages(network.module, network.head)] == [
        "stem",
        *(f"trunk_output.block{index}" for index in (1, 2, 3, 4)),
        "fc",
    ]


def test_models_of_users() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert [stage.modules for stage in find_stages(plain, "3")] == [("1",), ("3",)]

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))
            self.body = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
            self.head = nn.Linear(4, 2)

    stages = find_stages(Own(), "head")
    assert [stage.modules for stage in stages] == [("body.0", "body.1"), ("head",)]
    assert stages[0].parameters == ("scale", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias")


def test_a_model_that_is_its_head() -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

    (stage,) = find_stages(Single(), "head")
    assert (stage.modules, stage.parameters) == (("head",), ("head.weight", "head.bias"))
