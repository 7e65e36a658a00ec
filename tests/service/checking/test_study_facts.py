"""Facts come from a process in which anybody's code ran."""

from typing import Any

import pytest

from tests.service.checking.test_check import facts_with
from tuner.errors import StudyError
from tuner.service.checking.study_facts import Facts

SOUND = facts_with().record() | {"missing": []}


def test_what_was_told_is_read_as_it_was_told() -> None:
    assert Facts.read(SOUND).record() == SOUND


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("name", 1), ("mode", None), ("trials", "many"), ("max_epochs", -1), ("budget", []), ("space", None)),
        *(("kind", "tpu"), ("each", 0), ("each", float("nan")), ("each", 1e9), ("missing", [1]), ("missing", "all")),
    ],
)
def test_anything_else_is_refused(name: str, value: Any) -> None:
    with pytest.raises(StudyError, match="a check needs the study's facts"):
        Facts.read(SOUND | {name: value})


def test_unknown_and_missing_names_are_refused() -> None:
    with pytest.raises(StudyError, match="a check needs the study's facts"):
        Facts.read(SOUND | {"more": 1})
    with pytest.raises(StudyError, match="a check needs the study's facts"):
        Facts.read({name: value for name, value in SOUND.items() if name != "kind"})
