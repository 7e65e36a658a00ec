"""`Study.combine` is checked when the study is built."""

from typing import Any

import pytest

from tuner import Folds, ImageClassifier, Study, loguniform
from tuner.errors import StudyError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"combine": "stew"},
            "combine needs 'auto', 'ensemble', 'soup', 'distilled' or None, got 'stew'; write combine='auto'",
        ),
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
        (
            {"combine": "distilled", "trial": ImageClassifier("digits", weights=None, validation=Folds(3))},
            "trains one network, which needs validation images of its own, got .* write validation=0.2, or combine='auto'",
        ),
        (
            {
                "combine": "distilled",
                "space": {"finetune": "head", "optimizer": "lbfgs"},
                "trial": ImageClassifier("digits"),
            },
            "trains a network in steps on images, got optimizer='lbfgs', by which heads learn from features; leave it out",
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
    for how in ("auto", "ensemble", "soup", "distilled", None):
        study = Study("fine", trial=ImageClassifier("digits"), space={"lr": loguniform(1e-3, 1)}, combine=how)
        assert study.combine == how


@pytest.mark.parametrize("how", ["soup", "distilled"])
def test_one_network_costs_no_more_than_the_winner(how: Any) -> None:
    fields: dict[str, Any] = {"trial": ImageClassifier("digits"), "space": {"lr": loguniform(1e-3, 1)}}
    for costs in ({"limits": {"size_mb": 20}}, {"metric": ["val_accuracy", "latency_ms"]}):
        assert Study("fine", combine=how, **fields | costs).combine == how
