"""One process for several GPUs: `dp` and `balanced_dp`."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.parallel.test_group import TRIAL
from tuner.train import Trainer
from tuner.train.optimisation import Precision
from tuner.train.parallel.one_process import BalancedOneProcess, EvenParallel, InPrecision, Losses, OneProcess
from tuner.train.tasks.one_label import CrossEntropy

CPU = torch.device("cpu")
CONFIG = {"optimizer": "sgd", "lr": 0.05, "batch_size": 9, "class_weights": "balanced", "label_smoothing": 0.1}


def test_the_losses_of_parts_add_up_to_the_whole() -> None:
    torch.manual_seed(0)
    network, images, labels = nn.Linear(4, 3), torch.randn(7, 4), torch.arange(7) % 3
    objective = CrossEntropy(0.1, torch.tensor([1.0, 2.0, 3.0]))
    losses = Losses(network, objective, Precision("fp32", CPU))
    parts = torch.cat([losses(images[part], labels[part]) for part in (slice(0, 4), slice(4, 7))])
    assert parts.shape == (2,)
    assert parts.sum().item() == pytest.approx(objective.total(network(images), labels).item())
    assert dict(losses.named_buffers()).keys() == {"class_weights"}  # so that each GPU gets them


@dataclass(frozen=True)
class Doubled(CrossEntropy):
    """An objective with a setting more."""

    factor: float = 1.0

    def total(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.factor * super().total(logits, targets)


def test_each_gpu_has_all_settings_of_the_objective() -> None:
    images, labels, objective = torch.randn(7, 3), torch.arange(7) % 3, Doubled(0.1, torch.ones(3), factor=2.0)
    losses = Losses(nn.Identity(), objective, Precision("fp32", CPU))
    assert losses(images, labels).item() == pytest.approx(objective.total(images, labels).item())


@pytest.mark.parametrize(("images", "shares"), [(10, [3, 3, 2, 2]), (9, [3, 2, 2, 2]), (3, [1, 1, 1])])
def test_no_gpu_is_left_with_a_single_image_where_another_has_three(images: int, shares: list[int]) -> None:
    given = torch.arange(images), torch.arange(images) % 2
    found, named = EvenParallel(nn.Identity()).scatter(given, None, ["cpu"] * 4)
    assert [len(part) for part, _ in found] == shares
    assert torch.equal(torch.cat([part for part, _ in found]), given[0])
    assert torch.equal(torch.cat([labels for _, labels in found]), given[1])
    assert named == [{}] * len(shares)


def test_the_arithmetic_is_chosen_within_the_forward_pass() -> None:
    assert InPrecision(nn.Linear(4, 3), Precision("bf16", CPU))(torch.randn(2, 4)).dtype == torch.bfloat16


def test_what_the_user_is_told_names_the_better_choice() -> None:
    trainer = Trainer(TRIAL, CONFIG, epochs=1, strategy=OneProcess(2))
    assert any("strategy='ddp' gives the same gradients" in note for note in trainer.notes)


def trained(strategy: OneProcess | None, config: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    trainer = Trainer(TRIAL, config, epochs=2, seed=3, device="cuda", strategy=strategy)
    results = [trainer.run_epoch().metrics() for _ in range(2)]
    return trainer.snapshot().model, results


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_two_gpus_lead_to_the_same_weights_as_one(balanced: bool, precision: str) -> None:
    config = {**CONFIG, "precision": precision}
    alone, expected = trained(None, config)
    model, results = trained((BalancedOneProcess if balanced else OneProcess)(2), config)
    tolerance = 1e-5 if precision == "fp32" else 5e-3
    for name, value in model.items():
        torch.testing.assert_close(value, alone[name], atol=tolerance, rtol=1e-5)
    for one, other in zip(results, expected, strict=True):
        assert one["val_loss"] == pytest.approx(other["val_loss"], rel=1e-4 if precision == "fp32" else 1e-2)
