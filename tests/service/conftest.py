"""What all tests of the service share."""

import os
from collections.abc import Iterator

import pytest

from tests.commands import ROOT


@pytest.fixture(scope="module", autouse=True)  # no longer: other tests look where tuner is installed
def _programs_find_the_tests() -> Iterator[None]:
    """Servers and drivers that are started import from `tests`."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([before] if before else [])])
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
