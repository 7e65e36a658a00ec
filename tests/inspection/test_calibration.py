import math

import pytest
import torch

from tuner.inspection.tasks.calibration import bins_of, calibration, calibration_error, fitted_temperature


def overconfident(factor: float, images: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [N, 4] that are `factor` times those that the labels [N] were drawn by."""
    generator = torch.Generator().manual_seed(0)
    honest = 1.5 * torch.randn(images, 4, generator=generator)
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator).flatten()
    return factor * honest, labels


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_what_made_a_model_too_sure_or_not_sure_enough(factor: float) -> None:
    logits, labels = overconfident(factor)
    found = calibration(logits[:10_000], labels[:10_000], (logits[10_000:], labels[10_000:]))
    assert found.temperature == pytest.approx(factor, rel=0.05)
    assert found.scaled_ece < 0.02
    assert found.ece > 0.1 if factor != 1 else found.ece < 0.02
    assert (found.confidence > found.accuracy + 0.1) == (factor > 1)


def test_the_error_is_the_gap_of_confidence_and_accuracy_weighted_by_images() -> None:
    sure, unsure = math.log(0.9 / 0.1), math.log(0.6 / 0.4)
    logits = torch.tensor([[sure, 0.0]] * 3 + [[unsure, 0.0]])
    bins = bins_of(logits, torch.tensor([0, 0, 1, 1]))
    assert [(one.images, one.accuracy) for one in bins] == [(1, 0.0), (3, pytest.approx(2 / 3))]
    assert [one.confidence for one in bins] == [pytest.approx(0.6), pytest.approx(0.9)]
    assert calibration_error(bins) == pytest.approx((0.6 + 3 * (0.9 - 2 / 3)) / 4)


def test_a_model_that_is_always_right_on_few_images_is_not_made_sure_without_end() -> None:
    assert 0.2 < fitted_temperature(torch.eye(3), torch.arange(3)) < 1
