"""A server and a browser for the tests of pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.html_report.browsing import browsers
from tests.service.web.serving import Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as found:
        yield found


@pytest.fixture(scope="package")
def browser() -> Iterator[object]:
    with browsers() as found:
        yield found
