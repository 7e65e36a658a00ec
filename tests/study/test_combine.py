"""`Study.combine` is checked when the study is built."""

from typing import Any

import pytest

from tuner import ImageClassifier, Study, loguniform
from tuner.errors import StudyError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"combine": "stew"}, "combine needs 'auto', 'ensemble', 'soup' or None, got 'stew'; write combine='auto'"),
        (
            {"combine": "auto", "refit": "train+validation"},
            "a study trains its winner again or averages its best trials, got refit='train\\+validation' and combine='auto'",
        ),
        (
            {"combine": "auto", "trial": lambda config: None},
            "combine needs an ImageClassifier, whose networks tuner knows",
        ),
        (
            {"combine": "auto", "limits": {"size_mb": 20}},
            "an average of several costs more, got limits=.* and combine='auto'; leave one out, or write combine='soup'",
        ),
        (
            {"combine": "ensemble", "metric": ["val_accuracy", "latency_ms"]},
            "combine averages several networks, which raises latency_ms, got combine='ensemble'; leave it out, or write",
        ),
        (
            {"combine": "soup"},
            "networks that began from the same published weights, got .* name weights, or write combine='auto'",
        ),
        (
            {"combine": "soup", "trial": ImageClassifier("digits", lambda classes: None)},
            "of a function's; name weights",
        ),
    ],
)
def test_what_cant_be_combined_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        Study(
            "refused",
            **{"trial": ImageClassifier("digits", weights=None), "space": {"lr": loguniform(1e-3, 1)}} | fields,
        )


def test_all_ways_are_accepted() -> None:
    for how in ("auto", "ensemble", "soup", None):
        study = Study("fine", trial=ImageClassifier("digits"), space={"lr": loguniform(1e-3, 1)}, combine=how)
        assert study.combine == how


def test_a_mean_of_weights_costs_no_more_than_one_network() -> None:
    fields: dict[str, Any] = {"trial": ImageClassifier("digits"), "space": {"lr": loguniform(1e-3, 1)}}
    for costs in ({"limits": {"size_mb": 20}}, {"metric": ["val_accuracy", "latency_ms"]}):
        assert Study("fine", combine="soup", **fields | costs).combine == "soup"
