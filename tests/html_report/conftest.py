from collections.abc import Iterator

import pytest

from tests.html_report.browsing import browsers


@pytest.fixture(scope="package")
def browser() -> Iterator[object]:
    with browsers() as found:
        yield found
