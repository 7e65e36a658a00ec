import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tuner.errors import TrialOutOfMemory
from tuner.train.optimisation import Precision, build_optimizer, parameter_groups
from tuner.train.parallel.group import Group
from tuner.train.randomness import reseed, seeded
from tuner.train.step import FIRST_PASS, RUNNING, WHOLE_BATCH, TrainingStep, micro_batches
from tuner.train.tasks.one_label import CrossEntropy
from tuner.trial import ImageClassifier

CPU = torch.device("cpu")


def network(*, norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(4 * 36, 3),
    ).double()


def batch(size: int = 13) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.rand(size, 1, 8, 8, generator=generator, dtype=torch.float64),
        torch.randint(0, 3, (size,), generator=generator),
    )


class Memory:
    """An allocator with room for so many images: what goes through the network above that runs out of memory."""

    def __init__(self, module: nn.Module, room: int, *, without_gradient: int | None = None) -> None:
        self.room, self.without_gradient = room, room if without_gradient is None else without_gradient
        self.sizes: list[int] = []
        module.register_forward_pre_hook(self._allocate)

    def _allocate(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.sizes.append(len(inputs[0]))
        if len(inputs[0]) > (self.room if torch.is_grad_enabled() else self.without_gradient):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def stepper(module: nn.Module, batch_size: int = 13, **objective: Any) -> tuple[TrainingStep, torch.optim.Optimizer]:
    chosen = ImageClassifier().hyperparameters({"optimizer": "sgd", "lr": 0.1})
    optimizer = build_optimizer(parameter_groups([(p, 1.0) for p in module.parameters()], 0.0), chosen)
    step = TrainingStep(module, CrossEntropy(**objective), Precision("fp32", CPU), batch_size=batch_size, clip_norm=0.0)
    return step, optimizer


def take(
    step: TrainingStep, optimizer: torch.optim.Optimizer, given: Callable[[], Any] = batch, seed: int = 5
) -> Tensor:
    with seeded(0):
        return step(optimizer, given, lambda: reseed(seed, CPU), 13)


def gradients(module: nn.Module) -> list[Tensor]:
    return [value.grad.clone() for value in module.parameters() if value.grad is not None]


@pytest.mark.parametrize(
    ("images", "size", "expected"),
    [
        (10, 10, [10]),
        (10, 16, [10]),
        (10, 4, [4, 4, 2]),
        (9, 4, [4, 5]),
        (5, 2, [2, 3]),
        (3, 1, [1, 1, 1]),
        (2, 1, [1, 1]),
        (1, 4, [1]),
    ],
)
def test_parts_hold_every_image_and_a_tail_of_one_joins_its_neighbour(
    images: int, size: int, expected: list[int]
) -> None:
    parts = micro_batches(images, size)
    assert [part.stop - part.start for part in parts] == expected
    assert [index for part in parts for index in range(part.start, part.stop)] == list(range(images))


@pytest.mark.parametrize(
    "objective", [{}, {"label_smoothing": 0.1}, {"class_weights": torch.tensor([1.0, 2, 3]).double()}]
)
def test_parts_give_the_gradients_of_the_whole_batch(objective: dict[str, Any]) -> None:
    whole, parts = network().eval(), network().eval()
    first, first_optimizer = stepper(whole, **objective)
    second, second_optimizer = stepper(parts, **objective)
    second.micro_batch_size = 4
    losses = take(first, first_optimizer), take(second, second_optimizer)
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    for left, right in zip(gradients(whole), gradients(parts), strict=True):
        assert torch.allclose(left, right, rtol=1e-7, atol=1e-9)


def test_memory_that_runs_out_halves_the_part_and_takes_the_same_step_again() -> None:
    plain, starved = network().eval(), network().eval()
    memory = Memory(starved, room=4)
    first, first_optimizer = stepper(plain)
    second, second_optimizer = stepper(starved)
    for _ in range(2):
        losses = take(first, first_optimizer), take(second, second_optimizer)
        assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    assert memory.sizes == [13, 7, 4, 4, 5, 2, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2, 3]
    assert (second.micro_batch_size, second.retries) == (2, 3)
    for left, right in zip(plain.parameters(), starved.parameters(), strict=True):
        assert torch.allclose(left, right, rtol=1e-6, atol=1e-9)


def test_a_step_taken_again_draws_the_same_random_numbers() -> None:
    drawn: list[float] = []

    def given() -> tuple[Tensor, Tensor]:
        drawn.append(float(torch.rand(1)))
        return batch()

    module = network().eval()
    Memory(module, room=7)
    step, optimizer = stepper(module)
    with seeded(0):
        step(optimizer, given, lambda: reseed(9, CPU), 13)
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]


def test_a_single_image_that_doesnt_fit_ends_the_trial() -> None:
    module = network().eval()
    memory = Memory(module, room=0)
    step, optimizer = stepper(module)
    with pytest.raises(TrialOutOfMemory, match=r"^a single image doesn't fit into memory \(CUDA out of memory"):
        take(step, optimizer)
    assert memory.sizes == [13, 7, 4, 2, 1]
    assert all(parameter.grad is None for parameter in module.parameters())


def test_other_errors_pass_through_at_once() -> None:
    module = network()
    step, optimizer = stepper(module)
    with pytest.raises(RuntimeError, match="Kernel size"):
        take(step, optimizer, lambda: (torch.zeros(13, 1, 2, 2).double(), torch.zeros(13, dtype=torch.int64)))
    assert step.retries == 0


def test_statistics_of_parts_are_those_of_the_whole_batch() -> None:
    whole, parts = network(), network()
    first, first_optimizer = stepper(whole)
    second, second_optimizer = stepper(parts)
    second.micro_batch_size = 4
    losses = take(first, first_optimizer), take(second, second_optimizer)
    assert (first.batch_norm, second.batch_norm) == (WHOLE_BATCH, FIRST_PASS)
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    for name, buffer in whole.named_buffers():
        assert torch.allclose(buffer.double(), parts.get_buffer(name).double(), rtol=1e-6), name
    assert parts[1].training
    assert torch.allclose(whole[5].weight.grad, parts[5].weight.grad, rtol=1e-5, atol=1e-8)  # behind the norm: the same


def test_running_statistics_stand_in_where_the_whole_batch_never_fits() -> None:
    module = network()
    memory = Memory(module, room=4, without_gradient=4)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    step, optimizer = stepper(module)
    take(step, optimizer)
    assert (step.batch_norm, step.micro_batch_size) == (RUNNING, 2)  # 13 in fours would leave a five
    assert all(torch.equal(buffer, before[name]) for name, buffer in module.named_buffers())
    assert max(memory.sizes[-6:]) <= 3
    assert module[1].training


def test_a_failed_attempt_leaves_no_trace_in_the_statistics() -> None:
    plain, starved = network(), network()
    first, first_optimizer = stepper(plain)
    second, second_optimizer = stepper(starved)
    late = starved[5].register_forward_pre_hook(fail_once())
    take(first, first_optimizer)
    take(second, second_optimizer)
    late.remove()
    assert second.retries == 1
    for name, buffer in plain.named_buffers():
        assert torch.allclose(buffer.double(), starved.get_buffer(name).double(), rtol=1e-6), name


def fail_once() -> Callable[..., None]:
    failures = iter([True])

    def hook(*_: object) -> None:
        if next(failures, False):
            raise torch.OutOfMemoryError("CUDA out of memory")

    return hook


def test_what_steps_can_do_without_gives_way_before_the_micro_batch_does() -> None:
    module = network().eval()
    memory = Memory(module, room=7)
    step, optimizer = stepper(module)
    spare, reasons = ["compiled code"], []

    def relieve(reason: str) -> bool:
        reasons.append(reason)
        return bool(spare and spare.pop())

    with seeded(0):
        step(optimizer, batch, lambda: reseed(5, CPU), 13, relieve)
    assert memory.sizes == [13, 13, 7, 6]
    assert (step.micro_batch_size, step.retries) == (7, 2)
    assert reasons == ["CUDA out of memory. Tried to allocate 20.00 MiB."] * 2


class FailsOnce(TorchFunctionMode):
    """Memory that runs out the first time that one of torch's functions is called, and is there again afterwards."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.failed = function, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is self.function and not self.failed:
            self.failed = True
            raise torch.OutOfMemoryError("CUDA out of memory")
        return func(*args, **(kwargs or {}))


def after_two_steps(precision: str, clip_norm: float, memory: AbstractContextManager[object]) -> tuple[Tensor, int]:
    """Weights, and how often a step was taken again."""
    module = network(norm=False).float()
    _, optimizer = stepper(module)
    step = TrainingStep(module, CrossEntropy(), Precision(precision, CPU), batch_size=13, clip_norm=clip_norm)
    images, labels = batch()
    with memory:
        for _ in range(2):
            take(step, optimizer, lambda: (images.float(), labels))
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]), step.retries


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
@pytest.mark.parametrize(
    ("function", "clip_norm"),
    [
        (torch._amp_foreach_non_finite_check_and_unscale_, 0.05),
        (torch._foreach_norm, 0.05),  # of `get_total_norm`, when gradients are unscaled already
        (torch._foreach_mul_, 0.05),  # of `clip_grads_with_norm_`
        (torch._fused_sgd_, 0.05),
        (torch._fused_sgd_, 0.0),
    ],
    ids=["unscale", "norm", "clip", "optimizer clipped", "optimizer"],
)
def test_memory_that_runs_out_after_the_backward_pass_leaves_the_step_as_if_never_begun(
    precision: str, function: Any, clip_norm: float
) -> None:
    expected, _ = after_two_steps(precision, clip_norm, nullcontext())
    memory = FailsOnce(function)
    weights, retries = after_two_steps(precision, clip_norm, memory)
    assert retries == memory.failed == (precision == "fp16" or "unscale" not in function.__name__)
    # The second time in halves, which in half precision round otherwise; a step moves weights by 0.01 and more.
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6 if precision == "tf32" else 5e-4)


@pytest.mark.parametrize(("batch_size", "count"), [(38, 41), (12, 15), (8, 11), (64, 67), (8, 8), (7, 7)])
def test_processes_part_their_images_only_where_memory_ran_out(batch_size: int, count: int) -> None:
    shares = [len(Group(rank, 2).share(torch.arange(count))) for rank in range(2)]
    step = TrainingStep(
        network(),
        CrossEntropy(),
        Precision("fp32", CPU),
        batch_size=-(-batch_size // 2),
        clip_norm=0.0,
        group=Group(0, 2),
    )
    assert step._at_once(max(shares))  # also of a last batch to which the rest of an epoch was added
    step.micro_batch_size = 2
    assert not step._at_once(max(shares))


def test_mixed_up_targets_are_split_with_their_images() -> None:
    images, labels = batch()
    targets = F.one_hot(labels, 3).double() * 0.6 + 0.4 / 3
    whole, parts = network().eval(), network().eval()
    first, first_optimizer = stepper(whole)
    second, second_optimizer = stepper(parts)
    second.micro_batch_size = 5
    take(first, first_optimizer, lambda: (images, targets))
    take(second, second_optimizer, lambda: (images, targets))
    for left, right in zip(gradients(whole), gradients(parts), strict=True):
        assert torch.allclose(left, right, rtol=1e-7, atol=1e-9)


LIMITED = """
import resource, sys, torch
torch.set_num_threads(1)
from tuner.train import Trainer
from tuner.trial import ImageClassifier
trial = ImageClassifier("digits", "resnet18", weights=None)
trainer = Trainer(trial, {"batch_size": 1024, "image_size": 40, "stem": "sum"}, epochs=1, seed=0, split_seed=0)
trainer.train(steps=0)
held = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize"))) * 1024
limit = held + int(float(sys.argv[1]) * 1e6)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
trainer.train(steps=1)
print(trainer.parts.training_step.micro_batch_size, trainer.parts.training_step.retries, trainer.step)
"""


@pytest.mark.slow
def test_a_real_limit_of_the_hosts_memory_makes_the_parts_smaller() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "800"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    size, retries, steps = map(int, done.stdout.split())
    assert 1 <= size <= 512
    assert retries >= 1
    assert steps == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_limit_of_the_gpus_memory_makes_the_parts_smaller() -> None:
    from tuner.train import Trainer

    torch.cuda.set_per_process_memory_fraction(1.5e9 / torch.cuda.get_device_properties(0).total_memory)
    try:
        trainer = Trainer(
            ImageClassifier("digits", "resnet18", weights=None),
            {"batch_size": 1024, "image_size": 128},
            epochs=1,
            seed=0,
            split_seed=0,
            device="cuda",
        )
        result = trainer.run_epoch()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.oom_retries >= 1
    assert result.micro_batch_size < 1024
