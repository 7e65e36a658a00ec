"""Trials on a pretended GPU, see `pretend.py`: what they do there, but for the arithmetic, is what they do on a real one."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.pretend import GPU, PretendedGPU, on_gpu, pretending
from tuner.train import EpochResult, Trainer
from tuner.trial import ImageClassifier

CONFIG: dict[str, Any] = {"batch_size": 16, "image_size": 12}
CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "sgd": {"optimizer": "sgd", "momentum": 0.9},
    "sgd without momentum": {"optimizer": "sgd", "momentum": 0.0},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.01, "clip_norm": 1.0},
    "averaged weights": {"ema_decay": 0.9},
    "gradual": {"finetune": "gradual", "backbone_lr_scale": 0.3},
    "gradual sgd": {"finetune": "gradual", "optimizer": "sgd", "nesterov": True, "ema_decay": 0.9},
    "bf16": {"precision": "bf16", "optimizer": "adamw"},
    "fp16": {"precision": "fp16", "clip_norm": 1.0},
    "fp16 sgd": {"precision": "fp16", "optimizer": "sgd", "finetune": "gradual"},
    "images changed": {
        **{"flip": 0.5, "crop_padding": 2, "color_jitter": 0.3, "random_erasing": 0.3, "mixup": 0.2},
        **{"class_weights": "balanced", "dropout": 0.2, "label_smoothing": 0.1, "schedule": "cosine"},
    },
}


def small_model(config: dict[str, Any]) -> nn.Module:
    """Kernels of 3 x 3 in every stage, so that all strides count; quick."""

    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2), nn.BatchNorm2d(outputs), nn.ReLU())

    return nn.Sequential(block(3, 8), block(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


@pytest.fixture
def small(colours: ImageClassifier) -> ImageClassifier:
    """The three colours for a small model."""
    return replace(colours, model=small_model)


@pytest.fixture
def gpu() -> Iterator[PretendedGPU]:
    with pretending() as pretended:
        yield pretended


def trainer(trial: ImageClassifier, epochs: int = 2, **config: Any) -> Trainer:
    return Trainer(trial, CONFIG | config, epochs=epochs, seed=0, split_seed=0, device="cuda")


def curve(results: list[EpochResult]) -> list[tuple[float, float]]:
    return [(result.train_loss, result.val_loss) for result in results]


def held(running: Trainer) -> Iterator[Tensor]:
    """All that a trial holds for longer than a step."""
    modules = [running.module, *([running.average.module] if running.average else [])]
    for module in modules:
        yield from itertools.chain(module.parameters(), module.buffers())
    for state in running.optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def assert_it_fits_together(running: Trainer) -> None:
    """Everything lies on the GPU, and an optimizer's state and averaged weights are laid out as their parameters."""
    assert all(map(on_gpu, held(running)))
    for parameter, state in running.optimizer.state.items():
        moments = [value for name, value in state.items() if name != "step"]
        assert {tensor.stride() for tensor in moments if tensor is not None} <= {parameter.stride()}
    if running.average is not None:
        pairs = zip(running.module.parameters(), running.average.module.parameters(), strict=True)
        assert all(live.stride() == average.stride() for live, average in pairs)


@pytest.mark.parametrize("steps", [0, 2], ids=["between epochs", "within an epoch"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_paused_trial_goes_on_as_if_it_never_stopped(
    gpu: PretendedGPU, small: ImageClassifier, tmp_path: Path, config: dict[str, Any], steps: int
) -> None:
    first = trainer(small, **config)
    first.run_epoch()
    first.train(steps)
    first.save(tmp_path / "checkpoint")
    second = trainer(small, **config)
    second.load(tmp_path / "checkpoint")
    assert curve([second.run_epoch()]) == curve([first.run_epoch()])
    for running in (first, second):
        assert running.module[0][0].weight.is_contiguous(memory_format=torch.channels_last)
        assert_it_fits_together(running)
    assert not gpu.mixed
    assert first.device == GPU


def test_a_trial_of_resnet18_with_defaults_goes_on(gpu: PretendedGPU, colours: ImageClassifier, tmp_path: Path) -> None:
    first = trainer(colours)
    first.train(1)
    first.save(tmp_path / "checkpoint")
    second = trainer(colours)
    second.load(tmp_path / "checkpoint")
    second.train(1)
    assert_it_fits_together(second)
