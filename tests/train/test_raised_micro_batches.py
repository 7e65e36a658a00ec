"""A micro-batch that was made smaller is raised again."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.train.test_step import CPU, Memory, network, stepper, take
from tuner.train.memory import raising
from tuner.train.optimisation import Precision
from tuner.train.step import TrainingStep
from tuner.train.tasks.one_label import CrossEntropy


def counted(step: TrainingStep, optimizer: torch.optim.Optimizer, steps: int) -> list[int]:
    """Micro-batch sizes after each of some steps."""
    return [(take(step, optimizer), step.micro_batch_size)[1] for _ in range(steps)]


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[TrainingStep, torch.optim.Optimizer, Memory]]:
    """A step whose memory runs out above `room` images, a raise tried after 3 steps where `says` agrees."""
    monkeypatch.setattr(raising, "STEPS", 3)

    def make(room: int, says: Callable[[], bool] = lambda: True) -> tuple[TrainingStep, torch.optim.Optimizer, Memory]:
        module = network().eval()
        memory = Memory(module, room)
        _, optimizer = stepper(module)
        objective, precision = CrossEntropy(), Precision("fp32", CPU)
        return TrainingStep(module, objective, precision, batch_size=13, clip_norm=0.0, room=says), optimizer, memory

    return make


def test_a_micro_batch_is_raised_again_once_memory_is_there(roomy: Any) -> None:
    step, optimizer, memory = roomy(4)
    assert counted(step, optimizer, 1) == [2]
    memory.room = 13
    assert counted(step, optimizer, 10) == [2, 4, 4, 4, 8, 8, 8, 13, 13, 13]
    assert (step.retries, step.raising.failures) == (3, 0)


def test_attempts_to_raise_it_are_few_and_further_and_further_apart(roomy: Any) -> None:
    step, optimizer, _ = roomy(8)
    sizes = counted(step, optimizer, 40)
    assert sizes == [7, 7, 13, *[7] * 5, 13, *[7] * 31]
    assert (step.retries, step.raising.failures) == (3, 2)


def test_it_isnt_raised_where_nothing_says_that_there_is_room(roomy: Any) -> None:
    asked: list[int] = []

    def none() -> bool:
        asked.append(1)
        return False

    step, optimizer, _ = roomy(8, none)
    assert counted(step, optimizer, 10) == [7] * 10
    assert (len(asked), step.raising.failures) == (3, 0)


def test_it_isnt_raised_above_what_it_was_given(roomy: Any) -> None:
    step, optimizer, _ = roomy(13)
    step.micro_batch_size, step.largest = 3, 5
    assert counted(step, optimizer, 8)[-1] == 5
