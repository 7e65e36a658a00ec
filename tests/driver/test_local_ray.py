"""How the start of Ray on this machine is tried again, without Ray: what fails is put in its place."""

import pytest

from tuner.driver import local_ray
from tuner.driver.local_ray import LocalRay
from tuner.errors import StudyError
from tuner.machine import this_machine


def starts(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[object]:
    """What every try was given to start; those that have an error fail with it."""
    tries: list[object] = []

    def try_to_start(_machine: object, _settings: object, started: object) -> str:
        tries.append(started)
        if len(tries) <= len(errors):
            raise errors[len(tries) - 1]
        return "started"

    monkeypatch.setattr(local_ray, "_try_to_start", try_to_start)
    return tries


@pytest.mark.parametrize("failures", [0, 1])
def test_one_failure_to_start_is_made_good_by_a_second_try(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    tries = starts(monkeypatch, *[TimeoutError("busy")] * failures)
    made = [object(), object()]
    found: LocalRay | str = local_ray._start(this_machine(), {}, lambda: made[len(tries)])  # type: ignore[arg-type, return-value]
    assert (found, tries) == ("started", made[: failures + 1])  # each try starts from nothing


@pytest.mark.parametrize(
    ("error", "reason"), [(TimeoutError("no GCS\nafter 30 s"), "no GCS"), (TimeoutError(""), "TimeoutError")]
)
def test_two_failures_end_the_search_with_the_first_line_of_the_second(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    tries = starts(monkeypatch, OSError("another"), error)
    with pytest.raises(StudyError) as caught:
        local_ray._start(this_machine(), {}, object)  # type: ignore[arg-type]
    assert f"got no answer from it twice ({reason}); try again" in str(caught.value)
    assert len(tries) == 2
