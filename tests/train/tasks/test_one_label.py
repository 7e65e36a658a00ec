import pytest
import torch
from torch.nn import functional as F

from tuner.train.tasks.one_label import CrossEntropy, balanced_weights

LOGITS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2])
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("soft", [False, True])
def test_parts_of_a_batch_add_up_to_torchs_mean(smoothing: float, weights: torch.Tensor | None, soft: bool) -> None:
    objective = CrossEntropy(smoothing, weights)
    targets = F.one_hot(LABELS, 3).float().roll(1, 0) * 0.3 + F.one_hot(LABELS, 3) * 0.7 if soft else LABELS
    parts = sum(objective.total(LOGITS[part], targets[part]) for part in (slice(0, 3), slice(3, 7)))
    expected = F.cross_entropy(LOGITS, targets, weights, label_smoothing=smoothing)
    assert float(parts / objective.weight(targets)) == pytest.approx(float(expected), rel=1e-6)


def test_balanced_weights_are_inverse_to_the_counts_and_1_on_average() -> None:
    weights = balanced_weights(LABELS, 4)
    assert weights.tolist() == pytest.approx([7 / 12, 7 / 6, 7 / 3, 0])
    assert float(weights[LABELS].mean()) == pytest.approx(1)
