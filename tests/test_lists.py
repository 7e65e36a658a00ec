"""Lists of what is exported, which tests keep by hand, lack nothing."""

import re

import pytest

import tuner
from tests.commands import ROOT
from tests.schedule.each import EACH, EAGER, each_with
from tuner.schedule import Scheduler
from tuner.search import SearchAlgorithm

OF_SEARCHES = ("search/test_replays.py", "search/test_reproducibility.py", "test_study_json.py", "malformed.py")


def exported(kind: type) -> set[str]:
    """Names of what `tuner` has of a kind."""
    known = {name: getattr(tuner, name) for name in tuner.__all__}
    found = {name for name, one in known.items() if isinstance(one, type) and issubclass(one, kind) and one is not kind}
    assert len(found) > 3
    return found


@pytest.mark.parametrize("path", OF_SEARCHES)
def test_every_list_of_search_algorithms_has_each(path: str) -> None:
    text = (ROOT / "tests" / path).read_text()
    assert [name for name in exported(SearchAlgorithm) if not re.search(rf'\b{name}\(|"{name}"', text)] == []


@pytest.mark.parametrize("found", [EACH, EAGER, each_with(2, 3)], ids=["EACH", "EAGER", "each_with"])
def test_every_list_of_schedulers_has_each(found: list[Scheduler]) -> None:
    assert {type(one).__name__ for one in found} == exported(Scheduler)
