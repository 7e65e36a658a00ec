"""Several labels: losses and metrics held against torch's and scikit-learn's."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn
from torch.nn import functional as F

from tuner.errors import DataError
from tuner.inspection.tasks.several_labels import HALF, LabelAnswers, best_threshold
from tuner.train.tasks.several_labels import LabelTargets, average_precision
from tuner.trial.metrics import RecallAtPrecision
from tuner.trial.tasks import SEVERAL_LABELS

TARGETS = LabelTargets(("a", "b", "c"))
PLAIN = {"label_smoothing": 0.0, "class_weights": "none"}


def answers(count: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of three labels; the third is rare."""
    numbers = torch.Generator().manual_seed(count)
    labels = (torch.rand(count, 3, generator=numbers) < torch.tensor([0.5, 0.3, 0.05])).float()
    return torch.randn(count, 3, generator=numbers) + 1.5 * labels, labels


def test_each_metric_is_what_scikit_learn_says() -> None:
    logits, labels = answers()
    found = TARGETS.metrics(logits, labels, list(SEVERAL_LABELS.named.values()))
    shares, has = logits.sigmoid().numpy(), labels.numpy().astype(int)
    said = (shares >= 0.5).astype(int)
    assert dict(found.values) == pytest.approx(
        {
            "map": sklearn.average_precision_score(has, shares),
            "loss": sklearn.log_loss(has.flatten(), shares.flatten().astype(float)),
            "f1": sklearn.f1_score(has, said, average="macro"),
            "f1_micro": sklearn.f1_score(has, said, average="micro"),
            "subset_accuracy": sklearn.accuracy_score(has, said),
            "auroc": sklearn.roc_auc_score(has, shares),
            "precision": sklearn.precision_score(has, said, average="macro"),
            "recall": sklearn.recall_score(has, said, average="macro"),
            "label_accuracy": (has == said).mean(),
        },
        abs=1e-5,
    )
    assert list(found.values) == [*["map", "loss", "f1", "f1_micro", "subset_accuracy"], *SEVERAL_LABELS.named]


def test_images_with_equal_scores_are_taken_together() -> None:
    scores = torch.tensor([[2.0], [1.0], [1.0], [1.0], [0.0], [0.0]])
    labels = torch.tensor([[1.0], [0.0], [1.0], [1.0], [1.0], [0.0]])
    expected = sklearn.average_precision_score(labels[:, 0].numpy(), scores[:, 0].numpy())
    for order in (torch.arange(6), torch.tensor([3, 1, 0, 2, 5, 4])):
        assert average_precision(scores[order], labels[order]).tolist() == pytest.approx([expected])


def test_a_label_that_no_image_has_tells_nothing() -> None:
    logits, labels = answers()
    without = labels * torch.tensor([1.0, 1.0, 0.0])
    assert average_precision(logits, without).isnan().tolist() == [False, False, True]
    found = TARGETS.metrics(logits, without)
    assert found["map"] == pytest.approx(sklearn.average_precision_score(without[:, :2].numpy(), logits[:, :2].numpy()))
    none = TARGETS.metrics(torch.full((4, 3), -1.0), torch.zeros(4, 3))
    assert (none["f1_micro"], none["subset_accuracy"]) == (0.0, 1.0)
    assert math.isnan(none["map"])


def test_a_label_that_no_training_image_has_leaves_balanced_losses_finite() -> None:
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    chosen = {**PLAIN, "class_weights": "balanced"}
    objective = LabelTargets(("a", "b")).objective(chosen, labels, weighted=False)
    logits = torch.tensor([[0.5, -1.0], [0.25, 2.0]])
    expected = F.binary_cross_entropy_with_logits(logits, labels)  # half of the images have the first: equal weights
    assert float(objective.total(logits, labels)) / 2 == pytest.approx(float(expected))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("balanced", [False, True])
def test_parts_of_a_batch_add_up_to_torchs_mean(smoothing: float, balanced: bool) -> None:
    logits, labels = answers()
    chosen = {"label_smoothing": smoothing, "class_weights": "balanced" if balanced else "none"}
    objective = TARGETS.objective(chosen, labels, weighted=False)
    having = labels.sum(0)
    expected = F.binary_cross_entropy_with_logits(
        logits,
        labels * (1 - smoothing) + smoothing / 2,
        pos_weight=(len(labels) - having) / having if balanced else None,
    )
    parts = sum(objective.total(logits[part], labels[part]) for part in (slice(0, 30), slice(30, 200)))
    assert float(parts / objective.weight(labels)) == pytest.approx(float(expected), rel=1e-6)
    assert (set(objective.tensors) == {"positive_weights"}) == balanced  # so that they are brought to the device


def test_an_image_of_weight_two_counts_as_two() -> None:
    logits, labels = answers(6)
    weights = torch.tensor([2.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    weighted = TARGETS.objective(PLAIN, labels, weighted=True).total(logits, torch.cat([labels, weights[:, None]], 1))
    twice = torch.tensor([0, 0, 1, 2, 4, 5])
    plain = TARGETS.objective(PLAIN, labels, weighted=False).total(logits[twice], labels[twice])
    assert float(weighted) == pytest.approx(float(plain))


def test_several_networks_answer_with_their_mean_probabilities() -> None:
    each = torch.stack([answers(20)[0], answers(21)[0][:20], 30 * answers(22)[0][:20]]).double()
    shares = torch.tensor([0.2, 0.3, 0.5]).double()
    mean = (each.sigmoid() * shares[:, None, None]).sum(0)
    assert torch.allclose(LabelTargets.together(each, shares).sigmoid(), mean, atol=1e-9)


def test_a_threshold_is_the_one_with_the_highest_f1() -> None:
    logits, labels = answers()
    found = LabelAnswers(TARGETS).learn((logits, labels))["thresholds"]
    shares, has = logits.double().sigmoid().numpy(), labels.numpy().astype(int)
    for place, name in enumerate(TARGETS.names):
        each = [sklearn.f1_score(has[:, place], shares[:, place] >= limit) for limit in [*shares[:, place], 0.5]]
        reached = sklearn.f1_score(has[:, place], shares[:, place] >= found[name])
        assert reached == pytest.approx(max(each))
        assert found[name] != 0.5
    best = TARGETS.with_facts({"thresholds": found})
    assert best.facts() == {"thresholds": found}
    assert best.metrics(logits, labels)["f1"] > TARGETS.metrics(logits, labels)["f1"]
    assert best.metrics(logits, labels)["map"] == TARGETS.metrics(logits, labels)["map"]


def test_the_calibration_is_that_of_each_decision() -> None:
    logits, labels = answers(5000)
    exact = torch.bernoulli(logits.sigmoid(), generator=torch.Generator().manual_seed(0))
    found = LabelAnswers(TARGETS).files(3 * logits, exact, (3 * logits, exact))["calibration.json"]
    sure = (3 * logits).sigmoid()
    assert found["confidence"] == pytest.approx(float(torch.maximum(sure, 1 - sure).mean()), abs=1e-6)
    assert found["accuracy"] == pytest.approx(float(((logits > 0) == (exact > 0)).float().mean()), abs=1e-6)
    assert found["temperature"] == pytest.approx(3, rel=0.05)
    assert found["scaled_ece"] < 0.02 < found["ece"]
    assert LabelAnswers(TARGETS).files(logits, labels, None)["calibration.json"]["temperature"] is None


def test_few_images_and_equal_probabilities_have_a_threshold() -> None:
    few = torch.tensor([True] * 4 + [False] * 20)
    assert best_threshold(torch.rand(24, dtype=torch.float64), few) == HALF
    has = torch.tensor([True] * 10 + [False] * 10)
    assert best_threshold(torch.full((20,), 0.3, dtype=torch.float64), has) == pytest.approx(0.15)  # all have it
    assert best_threshold(torch.tensor([0.4] * 10 + [0.2] * 10, dtype=torch.float64), has) == pytest.approx(0.3)


def test_the_recall_of_a_label_at_its_precision() -> None:
    logits, labels = answers()
    share, wanted = logits.sigmoid()[:, 1].numpy(), labels[:, 1].numpy() == 1
    reached = [
        (wanted & (share >= limit)).sum() / wanted.sum() for limit in share if wanted[share >= limit].mean() >= 0.7
    ]
    metric = RecallAtPrecision(0.7, of="b")
    assert TARGETS.metrics(logits, labels, [metric])[metric.name] == pytest.approx(max(reached))


@pytest.mark.parametrize("labels", [[1, 0, 1], [[1, 2], [0, 1]], [[0.5, 0.5]]])
def test_labels_of_a_function_that_are_no_yes_or_no_are_refused(labels: object) -> None:
    with pytest.raises(DataError, match=r"several labels must be 0 or 1, \[N, L\], got \["):
        LabelTargets.given(labels, "training")


def test_labels_of_a_function_may_be_of_any_type() -> None:
    for labels in ([[1, 0]], [[True, False]], np.array([[1.0, 0.0]]), torch.tensor([[1, 0]], dtype=torch.uint8)):
        assert LabelTargets.given(labels, "training").tolist() == [[1.0, 0.0]]
