"""What `run` and `resume` share."""

import pytest

from tuner.driver import Driving
from tuner.lifecycle.interruption import GRACE_SECONDS


@pytest.mark.parametrize(("grace", "seconds"), [(None, GRACE_SECONDS), (1.5, 1.5), (0.0, 0.0)])
def test_a_search_has_the_seconds_that_it_was_given_to_end(grace: float | None, seconds: float) -> None:
    assert Driving(grace=grace).grace_seconds == seconds
