from collections.abc import Iterator

import pytest

from tests.train.test_features import pretrained_colours
from tuner.trial import ImageClassifier


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> ImageClassifier:
    """See `pretrained_colours`."""
    return pretrained_colours(tmp_path_factory.mktemp("data"))
