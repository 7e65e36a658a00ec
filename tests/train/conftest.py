from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

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


@pytest.fixture(autouse=True)
def _one_thread_and_no_cached_data() -> None:
    torch.set_num_threads(1)
    _load.cache_clear()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every download goes to a proxy that refuses."""
    without_network(monkeypatch)
