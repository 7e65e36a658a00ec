"""Metrics of the user's choice: held against scikit-learn's, also where classes have no images."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn

from tuner.errors import StudyError
from tuner.train.tasks.one_label import ClassTargets
from tuner.trial.metrics import ChosenMetric, RecallAtPrecision
from tuner.trial.tasks import ONE_LABEL

CLASSES = tuple("abcdef")
NAMED = ONE_LABEL.named


def answers(count: int, asked: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of six classes, and labels among the first few."""
    numbers = torch.Generator().manual_seed(count)
    labels = torch.randint(asked, (count,), generator=numbers)
    return torch.randn(count, 6, generator=numbers) + 1.5 * torch.eye(6)[labels], labels


def values_of(chosen: list[ChosenMetric], logits: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    found = ClassTargets(CLASSES).metrics(logits, labels, chosen)
    return {metric.name: found[metric.name] for metric in chosen}


def value_of(metric: ChosenMetric, logits: torch.Tensor, labels: torch.Tensor) -> float:
    return values_of([metric], logits, labels)[metric.name]


def calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Of 15 bins, after Guo et al. 2017."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    bins = np.minimum((confidence * 15).astype(int), 14)
    return sum(
        np.mean(bins == each) * abs(right[bins == each].mean() - confidence[bins == each].mean())
        for each in set(bins.tolist())
    )


@pytest.mark.parametrize("asked", [6, 4])
def test_each_metric_is_what_scikit_learn_says_of_the_classes_that_have_images(asked: int) -> None:
    logits, labels = answers(400, asked)
    found = values_of(list(NAMED.values()), logits, labels)
    shares, true = logits.softmax(1).numpy().astype(float), labels.numpy()
    said = shares.argmax(1)
    one_against_rest = [(true == label, shares[:, label]) for label in range(asked)]
    expected = {
        "balanced_accuracy": np.mean([(said[true == label] == label).mean() for label in range(asked)]),
        "precision": sklearn.precision_score(true, said, average="macro", zero_division=0),
        "weighted_f1": sklearn.f1_score(true, said, average="weighted", zero_division=0),
        "auroc": np.mean([sklearn.roc_auc_score(*pair) for pair in one_against_rest]),
        "average_precision": np.mean([sklearn.average_precision_score(*pair) for pair in one_against_rest]),
        "cohen_kappa": sklearn.cohen_kappa_score(true, said),
        "matthews_correlation": sklearn.matthews_corrcoef(true, said),
        "calibration_error": calibration_error(shares, true),
    }
    assert list(found) == list(NAMED) == list(expected)
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_recall_of_a_class_is_the_highest_at_its_precision() -> None:
    logits, labels = answers(300, 6)
    share, wanted = logits.softmax(1)[:, 2].numpy(), labels.numpy() == 2
    reached = [
        (wanted & (share >= limit)).sum() / wanted.sum() for limit in share if wanted[share >= limit].mean() >= 0.8
    ]
    metric = RecallAtPrecision(0.8, of="c")
    assert 0.1 < max(reached) < 1
    assert value_of(metric, logits, labels) == pytest.approx(max(reached))
    certain = torch.zeros(4, 6)
    assert value_of(metric, certain, torch.tensor([2, 0, 0, 0])) == 0  # no threshold is that precise


def test_a_class_without_images_tells_nothing_and_one_that_is_not_there_is_refused() -> None:
    logits, labels = answers(50, 2)
    assert math.isnan(value_of(RecallAtPrecision(0.5, of="f"), logits, labels))
    with pytest.raises(StudyError, match=r"needs a class of the data, got of='g'; it has a, b, c, d, e, f"):
        value_of(RecallAtPrecision(0.5, of="g"), logits, labels)
