import pytest
import torch
from torch import nn

from tuner.train.optimisation.precision import Precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(("name", "kind"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_products_are_computed_in_the_type(name: str, kind: torch.dtype) -> None:
    with Precision(name, CPU).arithmetic():
        assert nn.Linear(4, 4)(torch.ones(1, 4)).dtype == kind


def step(precision: Precision, value: float, clip_norm: float = 0.0) -> float:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    precision.backward((weight * value).sum())
    precision.step(optimizer, clip_norm)
    return float(weight.norm())


@pytest.mark.parametrize("name", ["fp32", "fp16"])
def test_gradients_reach_the_optimizer_unscaled_and_clipped(name: str) -> None:
    assert step(Precision(name, CPU), 3.0) == pytest.approx(18**0.5)
    assert step(Precision(name, CPU), 3.0, clip_norm=0.5) == pytest.approx(0.5, rel=1e-4)


def test_a_step_whose_gradients_overflow_is_left_out_and_the_scale_lowered() -> None:
    precision = Precision("fp16", CPU)
    before = precision.state()["scale"]
    assert step(precision, float("inf")) == 0.0
    assert precision.state()["scale"] == before / 2
    other = Precision("fp16", CPU)
    other.load(precision.state())
    assert other.state() == precision.state()
    assert Precision("fp32", CPU).state() == {}
