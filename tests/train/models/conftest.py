from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CLASSES = ("cat", "dog")
SIZES = ((150, 260), (300, 200), (190, 190), (500, 333))  # height, width


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the hub's cache lies."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "hf"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A class per folder; every image has another shape."""
    draws = np.random.default_rng(0)
    for label in CLASSES:
        for number, (height, width) in enumerate(SIZES):
            path = tmp_path / "photos" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            coarse = Image.fromarray(draws.integers(0, 256, (9, 11, 3), dtype=np.uint8))
            coarse.resize((width, height), Image.Resampling.BICUBIC).save(path)
    return tmp_path / "photos"
