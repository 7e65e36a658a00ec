"""The size of a checkpoint, foretold without training, beside what a real trainer writes."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tuner import ImageClassifier
from tuner.train import Trainer
from tuner.train.checkpoint_size import MOST_MODELS, checkpoint_bytes


def small_network(config: dict[str, Any]) -> nn.Module:
    width = config.get("width", 32)
    return nn.Sequential(
        nn.Conv2d(1, width, 3),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def written(trial: ImageClassifier, config: dict[str, Any], folder: Path) -> int:
    """Bytes of a real checkpoint after a step."""
    trainer = Trainer(trial, {"lr": 1e-3, "image_size": 32, "batch_size": 64, **config}, epochs=3, seed=0, split_seed=0)
    trainer.train(steps=1)
    trainer.save(folder)
    trainer.close()
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("resnet18", {"optimizer": "adam"}),
        ("resnet18", {"optimizer": "sgd", "momentum": 0.0, "ema_decay": 0.99}),
        ("squeezenet1_1", {"optimizer": "sgd", "momentum": 0.9}),
        (small_network, {"optimizer": "adamw"}),
    ],
    ids=["resnet18, adam", "resnet18, sgd and average", "squeezenet, momentum", "small network, adamw"],
)
def test_the_foretold_size_is_within_a_tenth_of_the_real_one(
    tmp_path: Path, model: Any, config: dict[str, Any]
) -> None:
    trial = ImageClassifier(data="digits", model=model, weights=None)
    foretold, _ = checkpoint_bytes(trial, [config], epochs=3, channels=1, classes=10)
    real = written(trial, config, tmp_path)
    assert foretold == pytest.approx(real, rel=0.1)


def test_the_largest_of_several_configurations_counts() -> None:
    trial = ImageClassifier(data="digits", model="resnet18", weights=None)
    configs: list[dict[str, Any]] = [
        {"optimizer": "sgd", "momentum": 0.0},
        {"optimizer": "adam", "ema_decay": 0.9},
        {"optimizer": "adam"},
    ]
    size, largest = checkpoint_bytes(trial, configs, epochs=3, channels=1, classes=10)
    assert largest == configs[1]
    assert size > checkpoint_bytes(trial, configs[2:], epochs=3, channels=1, classes=10)[0]


def test_of_a_frozen_backbone_the_head_alone_has_a_state() -> None:
    trial = ImageClassifier(data="digits", model="resnet18", weights=None)
    config = {"optimizer": "adam", "finetune": "head"}
    whole, _ = checkpoint_bytes(trial, [{"optimizer": "adam"}], epochs=3, channels=3, classes=10)
    head, _ = checkpoint_bytes(trial, [config], epochs=3, channels=3, classes=10)
    assert 2.5 < whole / head < 3


def test_a_function_is_asked_for_a_few_models_at_most() -> None:
    asked: list[Any] = []

    def counted(config: dict[str, Any]) -> nn.Module:
        asked.append(config["width"])
        return small_network(config)

    trial = ImageClassifier(data="digits", model=counted, weights=None)
    configs = [{"width": width, "lr": 0.1} for width in range(1, 200)]
    checkpoint_bytes(trial, configs, epochs=3, channels=1, classes=10)
    assert asked == list(range(1, MOST_MODELS + 1))
