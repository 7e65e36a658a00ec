from collections.abc import Iterator

import pytest
import torch

from tests.train.conftest import write_colours
from tests.train.test_features import SMALL, state_of_seven_classes
from tuner.trial import ImageClassifier


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> ImageClassifier:
    """48 training and 6 validation images of three colours, of which there are 16 to 28 images; saved weights."""
    folder = tmp_path_factory.mktemp("data")
    torch.save(state_of_seven_classes(), folder / "saved.pt")
    data = write_colours(folder / "colours")
    for file in sorted((data / "red").iterdir())[:8]:
        file.rename(data / "blue" / f"red-{file.name}")
    return ImageClassifier(f"folder:{data}", SMALL, weights=folder / "saved.pt")
