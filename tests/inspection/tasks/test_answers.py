"""What outputs of several labels, and of a number, mean for people: exact values."""

from pathlib import Path

import pytest
import torch

from tuner.inspection.tasks import answers_of
from tuner.inspection.tasks.number import NumberPrediction
from tuner.inspection.tasks.several_labels import LabelsPrediction
from tuner.train.tasks.number import NumberTargets
from tuner.train.tasks.several_labels import LabelTargets

LABELS = LabelTargets(("a", "b", "c")).with_facts({"thresholds": {"a": 0.5, "b": 0.8, "c": 0.5}})
#       a    b    c: probabilities of four images, and what they have
SHARES = torch.tensor([[0.9, 0.7, 0.1], [0.4, 0.9, 0.2], [0.6, 0.9, 0.3], [0.1, 0.2, 0.1]], dtype=torch.float64)
HAS = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
PHOTO = Path("photo.jpg")


def test_labels_are_counted_at_their_thresholds() -> None:
    told = answers_of(LABELS).files(SHARES.logit(), HAS, None)["labels.json"]
    precision = told.pop("average_precision")
    assert told == {
        "labels": ["a", "b", "c"],
        "thresholds": [0.5, 0.8, 0.5],
        "hits": [1, 1, 0],
        "answered": [2, 2, 0],
        "having": [1, 2, 0],
        "wrong_together": [[1, 1, 0], [1, 2, 0], [0, 0, 0]],
    }
    assert precision == [pytest.approx(1.0), pytest.approx((1 / 2 + 2 / 3) / 2), None]  # JSON has no NaN


def test_the_worst_images_are_furthest_beyond_the_thresholds() -> None:
    answers = answers_of(LABELS)
    assert answers.worst(SHARES.logit(), HAS).tolist() == [2, 0]  # 0.1 + 0.1 and 0.1 off; the others are right
    assert answers.shown(SHARES.logit()[:3], HAS[:3]) == [
        {"label": "a, b", "predicted": "a"},
        {"label": "b", "predicted": "b"},
        {"label": "none", "predicted": "a, b"},
    ]
    assert answers.share_right(SHARES, HAS) == 0.5
    assert answers.least_sure(SHARES.logit()) is None
    assert answers.counts(HAS) == {"a": 1, "b": 2, "c": 0}


def test_a_prediction_of_labels_is_those_from_their_thresholds_on() -> None:
    told = answers_of(LABELS).prediction(PHOTO, [0.5, 0.79, 0.6])
    assert told == LabelsPrediction(PHOTO, ("a", "c"), {"a": 0.5, "b": 0.79, "c": 0.6})
    assert (told.cells, told.shown) == (("a;c",), ("a 50%, c 60%",))
    assert told.record() == {
        "image": "photo.jpg",
        "labels": ("a", "c"),
        "probabilities": {"a": 0.5, "b": 0.79, "c": 0.6},
    }
    none = answers_of(LABELS).prediction(PHOTO, [0.1, 0.1, 0.1])
    assert (none.cells, none.shown) == (("",), ("none",))
    assert LabelTargets(("a",)).facts() == {}


def test_numbers_are_answered_in_their_unit() -> None:
    answers = answers_of(NumberTargets(("age",), mean=10.0, deviation=2.0))
    outputs, labels = torch.tensor([[0.5], [-1.0], [1.0]]), torch.tensor([[11.0], [6.5], [12.5]], dtype=torch.float64)
    told = answers.files(outputs, labels, None)
    assert told == {"numbers.json": {"name": "age", "labels": [11.0, 6.5, 12.5], "answers": [11.0, 8.0, 12.0]}}
    assert answers.worst(outputs, labels).tolist() == [1, 2, 0]
    assert answers.targets.goodness(outputs, labels).tolist() == [0.0, -1.5, -0.5]
    assert answers.shown(outputs[1:2], labels[1:2]) == [{"label": "6.5", "predicted": "8"}]
    assert (answers.share_right(outputs, labels), answers.counts(labels)) == (None, {})
    assert answers.facts == {"task": "number", "mean": 10.0, "deviation": 2.0}
    assert answers.prediction(PHOTO, [11.0]) == NumberPrediction(PHOTO, 11.0, None, None)
    assert answers.prediction(PHOTO, [11.0]).shown == ("11", "", "")
