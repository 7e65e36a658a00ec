"""Mixup and CutMix against torchvision's, and their losses against the papers' formula."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tuner.train.optimisation.mixing import NUMBERS, Mixing
from tuner.train.tasks.one_label import CrossEntropy
from tuner.train.without_compiler import compiler_not_needed

with compiler_not_needed():
    from torchvision.transforms.v2 import CutMix, MixUp

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2])
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])
KINDS: dict[str, tuple[dict[str, float], Any]] = {"mixup": ({"mixup": 0.4}, MixUp), "cutmix": ({"cutmix": 1.0}, CutMix)}
every_kind = pytest.mark.parametrize("kind", KINDS)


def mixing(kind: str) -> Mixing:
    alphas = {"mixup": 0.0, "cutmix": 0.0} | KINDS[kind][0]
    return Mixing(**alphas, classes=3)


def numbers(mix: Mixing, *, as_tensors: bool = False) -> list[Any]:
    drawn = mix.draw(6, 9)
    return [torch.tensor(value, dtype=torch.float64) for value in drawn] if as_tensors else drawn


@every_kind
@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_it_is_torchvisions_bit_for_bit(kind: str, as_tensors: bool, seed: int) -> None:
    images, mix = torch.rand(7, 3, 6, 9), mixing(kind)
    (alpha,) = KINDS[kind][0].values()
    torch.manual_seed(seed)
    expected = KINDS[kind][1](alpha=alpha, num_classes=3)(images, LABELS)
    torch.manual_seed(seed)
    mixed = mix(images, LABELS, numbers(mix, as_tensors=as_tensors))
    assert torch.equal(mixed[0], expected[0])
    assert torch.allclose(mixed[1], expected[1], atol=1e-7)


@every_kind
def test_images_and_labels_are_mixed_alike(kind: str) -> None:
    mix = mixing(kind)
    images = F.one_hot(LABELS, 3).float().view(7, 3, 1, 1).expand(7, 3, 6, 9)
    torch.manual_seed(1)
    for _ in range(20):
        mixed, targets = mix(images, LABELS, numbers(mix))
        assert torch.allclose(mixed.mean((2, 3)), targets, atol=1e-6)
        assert torch.allclose(targets.sum(1), torch.ones(7))
        if kind == "cutmix":  # each pixel is of one image
            assert set(mixed.unique().tolist()) <= {0.0, 1.0}


def test_with_both_a_batch_gets_either_equally_often() -> None:
    mix, images = Mixing(0.4, 1.0, classes=3), torch.rand(7, 3, 6, 9)
    torch.manual_seed(0)
    drawn = [mix.draw(6, 9) for _ in range(1000)]
    assert all(len(one) == NUMBERS for one in drawn)
    cut = [one for one in drawn if one[0] == 1 and one[1] == 0]
    assert len(cut) / 1000 == pytest.approx(0.5, abs=0.08)
    only_mixed = next(one for one in drawn if one not in cut)
    assert torch.equal(mix(images, LABELS, only_mixed)[0], Mixing(0.4, 0.0, classes=3)(images, LABELS, only_mixed)[0])
    assert torch.equal(mix(images, LABELS, cut[0])[0], Mixing(0.0, 1.0, classes=3)(images, LABELS, cut[0])[0])


@every_kind
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_the_loss_is_the_papers(kind: str, smoothing: float, weights: Tensor | None) -> None:
    """l * loss(y) + (1 - l) * loss(other y) of each image; class weights weigh each of both, and the mean is of images."""
    mix, objective = mixing(kind), CrossEntropy(smoothing, weights)
    torch.manual_seed(2)
    drawn, logits = numbers(mix), torch.randn(7, 3)
    _, targets = mix(torch.rand(7, 3, 6, 9), LABELS, drawn)
    found = objective.total(logits, targets) / objective.weight(targets)
    own, other = (
        F.cross_entropy(logits, labels, weights, label_smoothing=smoothing, reduction="none")
        for labels in (LABELS, LABELS.roll(1))
    )
    share = drawn[2]
    assert 0 < share < 1
    assert float(found) == pytest.approx(float((share * own + (1 - share) * other).mean()), rel=1e-5)
