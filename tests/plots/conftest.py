from collections.abc import Callable
from functools import cache

import pytest

from tests.results.kinds_of_runs import KINDS
from tuner import Run


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A run of a kind by its name, made once."""
    return cache(lambda kind: KINDS[kind](tmp_path_factory.mktemp(kind)))
