from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.train.pretend import GPU, pretending
from tuner.errors import TrialError
from tuner.train.optimisation.optimizer import build_optimizer, drop_unfinished_state, parameter_groups
from tuner.train.optimisation.precision import Precision
from tuner.trial import ImageClassifier

CPU = torch.device("cpu")


TYPES = {"tf32": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.mark.parametrize(("name", "kind"), TYPES.items())
def test_products_are_computed_in_the_type(name: str, kind: torch.dtype) -> None:
    with Precision(name, CPU).arithmetic():
        assert nn.Linear(4, 4)(torch.ones(1, 4)).dtype == kind


def step(precision: Precision, value: float, clip_norm: float = 0.0) -> float:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    precision.backward((weight * value).sum())
    precision.step(optimizer, clip_norm)
    return weight.norm().item()


@pytest.mark.parametrize("name", ["tf32", "fp16"])
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


class ScarceMemory(TorchFunctionMode):
    """An allocator that has no room when it is asked the nth time."""

    def __init__(self, fails_at: int) -> None:
        super().__init__()
        self._left = fails_at

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.zeros, torch.zeros_like, torch.empty_like):
            self._left -= 1
            if self._left == 0:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return func(*args, **(kwargs or {}))


def after_a_step(name: str, config: dict[str, Any], fails_at: int) -> tuple[list[float], bool]:
    """Weights of two groups after a step that is taken again where memory runs out, and whether it did."""
    precision = Precision(name, CPU)
    weights = [nn.Parameter(torch.full((2, 2), 0.5)), nn.Parameter(torch.full((2,), 0.5))]
    groups = parameter_groups([(weight, 1.0) for weight in weights], 0.1)
    optimizer = build_optimizer(groups, ImageClassifier().hyperparameters(config))
    failed = False
    for memory in (ScarceMemory(fails_at), nullcontext()):
        optimizer.zero_grad()
        precision.backward(sum(weight.square().sum() for weight in weights))  # type: ignore[arg-type]
        try:
            with memory:
                precision.step(optimizer, clip_norm=1.0)
            break
        except torch.OutOfMemoryError:
            failed = True
            drop_unfinished_state(optimizer)
    return [value for weight in weights for value in weight.flatten().tolist()], failed


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("name", ["tf32", "fp16"])
def test_a_step_whose_memory_ran_out_is_as_if_never_begun(name: str, optimizer: str) -> None:
    config = {"optimizer": optimizer, "lr": 0.1}
    expected, failed = after_a_step(name, config, fails_at=0)
    assert not failed
    results = [after_a_step(name, config, fails_at=place) for place in range(1, 9)]
    assert sum(failed for _, failed in results) >= 2
    assert all(weights == expected for weights, _ in results)


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


@pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled, but CUDA is not available:UserWarning")
def test_a_type_that_is_switched_off_on_this_machines_gpu_is_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_SWITCHED_OFF", "bf16")
    assert Precision("bf16", torch.device("cuda")).name == "tf32"
    assert Precision("bf16", torch.device("cpu")).name == "bf16"
    assert Precision("fp16", torch.device("cuda")).name == "fp16"


def rounding() -> tuple[bool, str, bool]:
    """Whether a GPU's convolutions use TF32, its matrix products' precision, and whether cuDNN searches."""
    return (
        torch.backends.cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("tf32", (True, "high")), ("fp32", (False, "highest")), ("bf16", (True, "high")), ("fp16", (True, "high"))],
)
def test_on_a_gpu_float32_is_rounded_as_the_name_says(name: str, expected: tuple[bool, str]) -> None:
    before = rounding()
    with pretending():
        precision = Precision(name, GPU)
        with precision.kernels(search=True):
            assert rounding() == (*expected, True)
            with precision.kernels():
                assert rounding() == (*expected, False)
            assert rounding() == (*expected, True)
        with pytest.raises(RuntimeError), precision.kernels():
            raise RuntimeError
    assert rounding() == before


def test_on_the_cpu_nothing_is_rounded() -> None:
    before = rounding()
    with Precision("tf32", CPU).kernels(search=True):
        assert rounding() == before


def test_a_gpu_that_emulates_bf16_refuses_it() -> None:
    with pretending(capability=(7, 5)):
        with pytest.raises(TrialError) as refused:
            Precision("bf16", GPU)
        assert Precision("fp16", GPU).name == "fp16"
    assert str(refused.value) == (
        "precision='bf16' needs a GPU that computes in it (compute capability 8.0 or newer), got pretended with 7.5, "
        "which emulates it; use 'fp16' or 'tf32'"
    )
    with pretending(capability=(8, 0)):
        assert Precision("bf16", GPU).name == "bf16"
    assert Precision("bf16", CPU).name == "bf16"
