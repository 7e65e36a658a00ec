"""Lists of what is exported, which tests keep by hand, lack nothing."""

import pytest

import tuner
from tests.schedule import each as schedulers
from tests.search import each as searches
from tuner.schedule import Scheduler
from tuner.search import SearchAlgorithm


def exported(kind: type) -> set[str]:
    """Names of what `tuner` has of a kind."""
    known = {name: getattr(tuner, name) for name in tuner.__all__}
    found = {name for name, one in known.items() if isinstance(one, type) and issubclass(one, kind) and one is not kind}
    assert len(found) > 3
    return found


@pytest.mark.parametrize("found", [searches.EACH, searches.EAGER], ids=["EACH", "EAGER"])
def test_every_list_of_search_algorithms_has_each(found: list[SearchAlgorithm]) -> None:
    assert {type(one).__name__ for one in found} == exported(SearchAlgorithm)


@pytest.mark.parametrize(
    "found",
    [schedulers.EACH, schedulers.EAGER, schedulers.each_with(2, 3)],
    ids=["EACH", "EAGER", "each_with"],
)
def test_every_list_of_schedulers_has_each(found: list[Scheduler]) -> None:
    assert {type(one).__name__ for one in found} == exported(Scheduler)
