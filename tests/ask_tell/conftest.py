"""Reports take most of the time of a small search: they are written only where a test wants one."""

import math

import pytest

from tuner.lifecycle import conclusion


@pytest.fixture
def with_report() -> None:
    """The search writes its report, as it does for users."""


@pytest.fixture(autouse=True)
def _no_report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "with_report" not in request.fixturenames:
        monkeypatch.setattr(conclusion, "SECONDS_FOR_REPORT", math.inf)
