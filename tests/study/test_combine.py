"""`Study.combine` is checked when the study is built."""

from typing import Any

import pytest

from tuner import ImageClassifier, Study, loguniform
from tuner.errors import StudyError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"combine": "soup"}, "combine needs 'auto', 'ensemble' or None, got 'soup'; write combine='auto'"),
        (
            {"combine": "auto", "refit": "train+validation"},
            "a study trains its winner again or averages its best trials, got refit='train\\+validation' and combine='auto'",
        ),
        (
            {"combine": "auto", "trial": lambda config: None},
            "combine needs an ImageClassifier, whose networks tuner knows",
        ),
    ],
)
def test_what_cant_be_combined_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        Study(
            "refused",
            **{"trial": ImageClassifier("digits", weights=None), "space": {"lr": loguniform(1e-3, 1)}} | fields,
        )


def test_both_ways_are_accepted() -> None:
    for how in ("auto", "ensemble", None):
        study = Study(
            "fine", trial=ImageClassifier("digits", weights=None), space={"lr": loguniform(1e-3, 1)}, combine=how
        )
        assert study.combine == how
