"""Each family of torchvision learns in each way of fine-tuning, from random weights."""

import math

import pytest
import torch

from tuner.train import Trainer
from tuner.trial import ImageClassifier

FAMILIES = [
    "resnet18",
    "efficientnet_b0",
    "convnext_tiny",
    "mobilenet_v3_small",
    pytest.param("vit_b_16", marks=pytest.mark.slow),
    "densenet121",
    pytest.param("vgg11", marks=pytest.mark.slow),
]


def six_images() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (6, 1, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.arange(6) % 3
    return (images, labels), (images[:3], labels[:3]), (images[3:], labels[3:])


def trainer(family: str, **chosen: object) -> Trainer:
    size = 224 if family == "vit_b_16" else 32
    config = {"batch_size": 3, "optimizer": "sgd", "lr": 1e-2, "image_size": size, **chosen}
    return Trainer(ImageClassifier(six_images, family, weights=None), config, epochs=4)


def moved(running: Trainer) -> set[str]:
    """Names of the parameters that an epoch changes; in random networks some gradients are too small to change any."""
    before = {name: value.detach().clone() for name, value in running.module.named_parameters()}
    result = running.run_epoch()
    assert math.isfinite(result.train_loss)
    assert 0 <= result.validation["accuracy"] <= 1
    changed = {name for name, value in running.module.named_parameters() if not torch.equal(value, before[name])}
    assert changed <= learning(running)
    return changed


def learning(running: Trainer) -> set[str]:
    return {name for name, value in running.module.named_parameters() if value.requires_grad}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_learns_first_then_stage_by_stage_what_lies_before_it(family: str) -> None:
    running = trainer(family, finetune="gradual", unfreeze_every=1, stem="sum")
    head = {f"{running.parts.network.head}.{name}" for name in ("weight", "bias")}
    assert head & moved(running)
    assert learning(running) == head  # a grey stem summed from the colours is frozen with the backbone
    assert moved(running) & head
    second = learning(running)
    assert second > head
    assert moved(running) & head
    assert learning(running) > second
    assert not any(name.startswith(f"{running.parts.network.stem}.") for name in learning(running))


@pytest.mark.parametrize("family", FAMILIES)
def test_all_layers_learn_at_once(family: str) -> None:
    running = trainer(family, finetune="all", lr=1e-3)
    changed = moved(running)
    everything = {name for name, _ in running.module.named_parameters()}
    assert learning(running) == everything
    assert len(changed) > 0.9 * len(everything)
