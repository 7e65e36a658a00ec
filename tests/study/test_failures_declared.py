"""What a study says about trials that fail."""

import math
from typing import Any

import pytest

from tests.loop.simulation import study
from tuner import Failures, StudyError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"lost": -1},
            "Failures.lost needs a whole number of at least 0, got -1; use 0 to try no trial again",
        ),
        ({"error": True}, "Failures.error needs a whole number of at least 0, got True; use 0 to try no trial again"),
        (
            {"out_of_memory": 1.0},
            "Failures.out_of_memory needs a whole number of at least 0, got 1.0; use 0 to try no trial again",
        ),
        (
            {"alike": 0},
            "Failures.alike needs a whole number of at least 1, got 0; "
            "use 5, or None if failures are never to end the search",
        ),
        (
            {"hung_minutes": 0},
            "Failures.hung_minutes needs a number above 0, got 0; use more than the longest epoch takes, or None",
        ),
        (
            {"hung_minutes": math.nan},
            "Failures.hung_minutes needs a number above 0, got nan; use more than the longest epoch takes, or None",
        ),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as refused:
        Failures(**settings)
    assert str(refused.value) == message


def test_the_defaults_try_lost_trials_and_those_without_memory_again() -> None:
    failures = study().failures
    assert failures == Failures(lost=3, error=0, out_of_memory=1, alike=5, hung_minutes=None)
    assert [failures.tries(kind) for kind in ("lost", "error", "out_of_memory", "diverged")] == [3, 0, 1, 0]
    assert (failures.hung_seconds, Failures(hung_minutes=1.5).hung_seconds) == (None, 90.0)


def test_a_study_refuses_anything_else() -> None:
    with pytest.raises(StudyError, match=r"^failures needs a Failures, got \{'error': 1\}$"):
        study(failures={"error": 1})
    with pytest.raises(StudyError, match=r"; write Failures\(\)$"):
        study(failures=Failures)
