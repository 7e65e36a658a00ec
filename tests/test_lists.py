"""Lists of what is exported, which tests keep by hand, lack nothing."""

import re

import pytest

import tuner
from tests.commands import ROOT
from tuner.schedule import Scheduler
from tuner.search import SearchAlgorithm

LISTS = {
    Scheduler: (
        "schedule/test_base.py",
        "schedule/test_replays.py",
        "loop/test_faults.py",
        "ask_tell/test_search.py",
        "test_study_json.py",
        "malformed.py",
    ),
    SearchAlgorithm: ("search/test_replays.py", "search/test_reproducibility.py", "test_study_json.py", "malformed.py"),
}


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind, paths in LISTS.items() for path in paths])
def test_every_list_has_each(kind: type, path: str) -> None:
    exported = [
        name
        for name in tuner.__all__
        if isinstance(found := getattr(tuner, name), type) and issubclass(found, kind) and found is not kind
    ]
    assert len(exported) > 2
    text = (ROOT / "tests" / path).read_text()
    assert [name for name in exported if not re.search(rf'\b{name}\(|"{name}"', text)] == []
