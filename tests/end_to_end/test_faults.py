"""A few of the faults of benchmarks/faults.py: real processes killed at random moments lose nothing."""

import pytest

from benchmarks.faults import hits

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("driver killed", marks=pytest.mark.slow),  # as in test_signals.py, at any moment
        "worker killed past a rung",
        pytest.param("driver killed in its conclusion", marks=pytest.mark.slow),
        "truncated",
        pytest.param("power", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_by_a_fault(kind: str) -> None:
    assert [attempt.lost for attempt in hits(kind, times=1, seed=0)] == [[]]
