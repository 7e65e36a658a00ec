from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.commands import without_network
from tuner.train.data.loading import _load
from tuner.trial import ImageClassifier

COLOURS = {"blue": (40, 60, 200), "green": (40, 190, 70), "red": (210, 50, 40)}


def write_colours(root: Path, images: int = 20, pixels: int = 12) -> Path:
    """A class per colour, its images noisy, all different and the same every time."""
    generator = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for index in range(images):
            noise = generator.integers(-40, 41, (pixels, pixels, 3))
            Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(root / name / f"{index}.png")
    return root


@pytest.fixture
def colours(tmp_path: Path) -> ImageClassifier:
    """A trial that learns in seconds: 60 small images of three colours, random weights."""
    return ImageClassifier(f"folder:{write_colours(tmp_path / 'colours')}", "resnet18", weights=None)


def small_model(config: dict[str, Any]) -> nn.Module:
    """Kernels of 3 x 3 in every stage, so that all strides count; quick."""

    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2), nn.BatchNorm2d(outputs), nn.ReLU())

    return nn.Sequential(block(3, 8), block(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


@pytest.fixture
def small(colours: ImageClassifier) -> ImageClassifier:
    """The three colours for a small model."""
    return replace(colours, model=small_model)


@pytest.fixture(autouse=True)
def _one_thread_and_no_cached_data() -> None:
    torch.set_num_threads(1)
    _load.cache_clear()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every download goes to a proxy that refuses."""
    without_network(monkeypatch)
