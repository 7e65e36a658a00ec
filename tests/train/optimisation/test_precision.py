import pytest
import torch
from torch import nn

from tuner.train.optimisation.optimizer import build_optimizer, parameter_groups
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
    return weight.norm().item()


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


def test_a_first_step_that_is_left_out_leaves_no_trace_in_the_momentum() -> None:
    precision, weight = Precision("fp16", CPU), nn.Parameter(torch.zeros(4096))
    optimizer = build_optimizer(
        parameter_groups([(weight, 1.0)], 0.0), {"optimizer": "sgd", "lr": 1.0, "momentum": 0.9, "nesterov": False}
    )
    for value in (float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        precision.backward((weight * value).sum())
        freed = [torch.full((4096,), torch.nan) for _ in range(50)]  # what the momentum's memory may have held before
        del freed
        precision.step(optimizer, 0.0)
    assert weight.detach().tolist() == pytest.approx([-(1 + 1.9)] * 4096, rel=1e-3)
    assert optimizer.state[weight]["momentum_buffer"].tolist() == pytest.approx([1.9] * 4096, rel=1e-3)


def test_an_overflow_in_one_process_counts_in_all() -> None:
    precision = Precision("fp16", CPU)
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    for others in (0.0, 1.0, 2.0):  # processes in which a gradient overflowed beside this one
        weight.grad = None
        precision.backward(weight.sum())
        before = weight.detach().clone()
        precision.step(optimizer, 0.0, lambda found, others=others: found + others)  # type: ignore[misc]
        assert torch.equal(weight, before) is (others > 0)


def test_a_type_that_is_switched_off_on_this_machines_gpu_is_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_SWITCHED_OFF", "bf16")
    assert Precision("bf16", torch.device("cuda")).name == "fp32"
    assert Precision("bf16", torch.device("cpu")).name == "bf16"
    assert Precision("fp16", torch.device("cuda")).name == "fp16"
